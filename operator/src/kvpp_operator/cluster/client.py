"""What we ask of an API server: server-side apply and little else.

One field manager for all we write, so that `managedFields` says whose field is whose.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from kvpp_operator import names
from kvpp_operator.cluster.transport import ATTEMPTS, JSON, ClusterError, Observer, Transport, unobserved
from kvpp_operator.manifest import Key, Kind, Manifest, key_of, kind_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kvpp_operator.cluster.access import Access

PAGE = 500
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML, and cheaper to parse
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class Patch(StrEnum):
    """Forms of a patch, by content type.  Strategic merge is for built-in kinds only."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Conflict:
    """The object is not in the state that the call asked for: it exists already, or somebody changed or replaced it."""

    key: Key
    message: str


class Cluster:
    """One API server.  Use as `async with Cluster(access) as cluster`.

    Calls raise `ClusterError`, after short retries of transient errors; long waits belong to the work queue.
    """

    def __init__(
        self,
        access: Access,
        *,
        concurrency: int = 12,  # 8 to 16: more only wait inside the API server (measured)
        timeout_seconds: float = 15.0,
        attempts: int = ATTEMPTS,
        observe: Observer = unobserved,
    ) -> None:
        self._transport = Transport(
            access, concurrency=concurrency, timeout_seconds=timeout_seconds, attempts=attempts, observe=observe
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._transport.__aexit__(*exception)

    async def get(self, key: Key) -> Manifest | None:
        """Read one object; `None` if there is none, or if its API is absent."""
        try:
            return await self._transport.call("GET", kind_of(key), path_of(key))
        except ClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def list(
        self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "", metadata_only: bool = False
    ) -> AsyncIterator[Manifest]:
        """Read all objects of a kind, page by page, so that a big cluster never lies in memory whole."""
        path = collection_of(kind, namespace)
        more = ""
        while True:
            query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": more}
            page = await self._transport.call(
                "GET", kind, path, query=query, accept=METADATA_ONLY if metadata_only else JSON, verb="LIST"
            )
            for item in page.get("items") or ():
                yield {**item, "apiVersion": kind.api_version, "kind": kind.name}
            more = page["metadata"].get("continue") or ""
            if not more:
                return

    async def apply(self, manifest: Manifest, *, force: bool = True, dry_run: bool = False) -> Manifest:
        """Server-side apply.  `force` takes fields over from other managers; without it they are a 409."""
        key = key_of(manifest)
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true" if force else ""}
        query["dryRun"] = "All" if dry_run else ""
        return await self._transport.call(
            "PATCH", kind_of(key), path_of(key), manifest, query, content=APPLY_PATCH, verb="APPLY"
        )

    async def apply_status(self, body: Manifest, status: Manifest) -> Manifest | Conflict:
        """Make `status` the status of the live object, if it is still the one in `body`: same resourceVersion.

        By server-side apply, not by merge patch: what we stop saying goes away without a list of nulls,
        and keyed lists (conditions) merge with those of others.  The status endpoint of a custom resource
        does not look at a uid, so only the version keeps a predecessor's status from its successor.
        """
        key, meta = key_of(body), body["metadata"]
        wanted = {
            "apiVersion": key.api_version,
            "kind": key.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "resourceVersion": meta["resourceVersion"]},
            "status": status,
        }
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        path = f"{path_of(key)}/status"
        try:
            return await self._transport.call(
                "PATCH", kind_of(key), path, wanted, query, content=APPLY_PATCH, verb="APPLY_STATUS"
            )
        except ClusterError as error:
            return _conflict(key, error)

    async def create(self, manifest: Manifest) -> Manifest | Conflict:
        """Create an object that must not exist yet."""
        key = key_of(manifest)
        query = {"fieldManager": names.FIELD_MANAGER}
        try:
            return await self._transport.call(
                "POST", kind_of(key), collection_of(kind_of(key), key.namespace), manifest, query
            )
        except ClusterError as error:
            return _conflict(key, error)

    async def replace(self, manifest: Manifest) -> Manifest | Conflict:
        """Compare and swap: written only if `metadata.resourceVersion` is still the live one.

        After a lost answer the second attempt meets our own write as a `Conflict`: read again before judging.
        """
        key = key_of(manifest)
        if not manifest["metadata"].get("resourceVersion"):
            raise ValueError(f"{key}: replacing without a resourceVersion would overwrite anything")
        try:
            query = {"fieldManager": names.FIELD_MANAGER}
            return await self._transport.call("PUT", kind_of(key), path_of(key), manifest, query)
        except ClusterError as error:
            return _conflict(key, error)

    async def patch(
        self, key: Key, patch: Manifest | Sequence[Manifest], *, form: Patch, manager: str = names.FIELD_MANAGER
    ) -> Manifest:
        """Change an object by one of the older patches; for what we own, `apply` is the way."""
        query = {"fieldManager": manager}
        return await self._transport.call("PATCH", kind_of(key), path_of(key), patch, query, content=form)

    async def delete(
        self, key: Key, *, uid: str, resource_version: str = "", grace_seconds: int | None = None
    ) -> Conflict | None:
        """Delete exactly the object that was seen; its dependents follow in the background.  Absent is fine.

        `grace_seconds` 0 takes a pod away without its kubelet's word: only for a node that is lost.
        """
        preconditions = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
            **({} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}),
        }
        try:
            await self._transport.call("DELETE", kind_of(key), path_of(key), options)
        except ClusterError as error:
            return None if error.status == HTTPStatus.NOT_FOUND else _conflict(key, error)
        return None

    async def serves(self, kind: Kind) -> bool:
        """Whether the API of a kind exists now: custom resources come and go."""
        try:
            found = await self._transport.call("GET", kind, _base(kind), verb="DISCOVER")
        except ClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in found.get("resources") or ())


def collection_of(kind: Kind, namespace: str = "") -> str:
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    return f"{_base(kind)}{scope}/{kind.plural}"


def path_of(key: Key) -> str:
    return f"{collection_of(kind_of(key), key.namespace)}/{quote(key.name, safe='')}"


def _base(kind: Kind) -> str:
    return f"/apis/{kind.api_version}" if "/" in kind.api_version else f"/api/{kind.api_version}"


def _conflict(key: Key, error: ClusterError) -> Conflict:
    if error.status != HTTPStatus.CONFLICT:
        raise error
    return Conflict(key, error.message)
