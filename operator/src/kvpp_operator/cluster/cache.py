"""What the watches told: the newest known state of every object of ours, of engines' pods, of every KVPPDeployment.

Objects are kept packed.  A pod template as Python dicts takes about ten times the room of its compressed JSON, and
10,000 of them have to fit in an operator's memory; unpacking one costs about as much as a log line.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.manifest import (
    API_VERSION,
    DEPLOYMENTS,
    KIND,
    KIND_OF,
    LEASES,
    NAMESPACES,
    PODS,
    DeploymentKey,
    Key,
    Kind,
    Manifest,
    controller_of,
    key_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Deletions remembered, so that a late answer to an older write brings no ghost back.
TOMBSTONES = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """One object, packed, with what is asked often kept outside."""

    uid: str
    resource_version: str
    deployment: DeploymentKey | None
    conditions: tuple[tuple[str, str], ...]  # of a KVPPDeployment: (type, status)
    packed: bytes

    @property
    def manifest(self) -> Manifest:
        unpacked: Manifest = json.loads(zlib.decompress(self.packed))
        return unpacked


class Cache:
    """Objects by key and by deployment.  Not for several threads: only the event loop's owner touches it."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._of_deployment: dict[DeploymentKey, set[Key]] = {}
        self._gone: OrderedDict[Key, str] = OrderedDict()
        self.conditions: Counter[tuple[str, str]] = Counter()
        """How many KVPPDeployments have a condition in a status: (type, status) → number."""
        self.served: frozenset[Kind] = frozenset()
        """Kinds that we watch because the cluster serves their API; optional ones come and go."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def put(self, manifest: Manifest) -> bool:
        """Take in an object from a watch, a list, or the answer to our own write; `False` if it is no news.

        Answers and watches overtake each other: an older state never replaces a newer one.
        """
        key, meta = _known(key_of(manifest)), manifest["metadata"]
        version = meta.get("resourceVersion", "")
        known = self._entries.get(key)
        latest = self._gone.get(key, "") if known is None else known.resource_version
        if version == latest or is_older(version, latest):
            return False
        self._forget(key)
        self._gone.pop(key, None)
        reduced = _REDUCE.get(key.kind, _without_managed_fields)(manifest)
        packed = zlib.compress(json.dumps(reduced, separators=(",", ":")).encode(), 1)
        conditions = _conditions(manifest) if key.kind == KIND else ()
        entry = Entry(meta["uid"], version, deployment_of(manifest), conditions, packed)
        self._entries[key] = entry
        self.conditions.update(conditions)
        if entry.deployment is not None:
            self._of_deployment.setdefault(entry.deployment, set()).add(key)
        return True

    def drop(self, key: Key, *, uid: str, resource_version: str = "") -> bool:
        """Forget an object that is deleted; `False` if it is unknown, or a successor stands in its place already."""
        known = self._entries.get(key)
        if known is None or known.uid != uid:
            return False
        self._forget(key)
        self._gone[key] = max(resource_version, known.resource_version, key=_ordinal)
        while len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)
        return True

    def _forget(self, key: Key) -> None:
        known = self._entries.pop(key, None)
        if known is None:
            return
        self.conditions.subtract(known.conditions)
        if known.deployment is not None:
            keys = self._of_deployment[known.deployment]
            keys.discard(key)
            if not keys:
                del self._of_deployment[known.deployment]

    def get(self, key: Key) -> Manifest | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.manifest

    def entry(self, key: Key) -> Entry | None:
        """Find an object without unpacking it."""
        return self._entries.get(key)

    def deployment(self, key: DeploymentKey) -> Manifest | None:
        """Find a KVPPDeployment, whole but for its managed fields."""
        return self.get(Key(API_VERSION, KIND, key.namespace, key.name))

    def deployments(self) -> tuple[DeploymentKey, ...]:
        return tuple(DeploymentKey(key.namespace, key.name) for key in self._entries if key.kind == KIND)

    def is_leaving(self, namespace: str) -> bool:
        """Tell whether a namespace is being deleted; unknown where namespaces are not watched."""
        found = self.get(Key(NAMESPACES.api_version, NAMESPACES.name, "", namespace))
        return found is not None and "deletionTimestamp" in found["metadata"]

    def owned(self, deployment: DeploymentKey) -> tuple[Manifest, ...]:
        """List what carries our mark for a deployment, pods apart; whether it is ours its controller says."""
        return self._objects(deployment, pods=False)

    def pods(self, deployment: DeploymentKey) -> tuple[Manifest, ...]:
        """List pods of a deployment's engines and services, reduced to metadata, node, container names and status."""
        return self._objects(deployment, pods=True)

    def _objects(self, deployment: DeploymentKey, *, pods: bool) -> tuple[Manifest, ...]:
        keys = self._of_deployment.get(deployment, ())
        chosen = sorted(key for key in keys if key.kind != KIND and (key.kind == PODS.name) == pods)
        return tuple(self._entries[key].manifest for key in chosen)


def deployment_of(manifest: Manifest) -> DeploymentKey | None:
    """Name the KVPPDeployment that an object concerns: itself, its controller, or the one that its label names."""
    meta = manifest["metadata"]
    namespace = meta.get("namespace", "")
    if manifest["kind"] == KIND:
        return DeploymentKey(namespace, meta["name"])
    controller = controller_of(manifest)
    if controller is not None and controller["kind"] == KIND:
        return DeploymentKey(namespace, controller["name"])
    label = (meta.get("labels") or {}).get(names.DEPLOYMENT)
    return DeploymentKey(namespace, label) if label else None


def reduce_pod(pod: Manifest) -> Manifest:
    """Keep what we ask of a pod: who it is, where it runs, which ports its containers name, what they do."""
    spec = pod.get("spec") or {}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.name,
        "metadata": _without_managed_fields(pod)["metadata"],
        "spec": {
            **{name: spec[name] for name in ("nodeName", "hostNetwork") if name in spec},
            "containers": [
                {name: container[name] for name in ("name", "ports") if name in container}
                for container in spec.get("containers") or ()
            ],
        },
        "status": pod.get("status") or {},
    }


def reduce_lease(lease: Manifest) -> Manifest:
    """Keep what we wish of a Lease: who holds it and until when is the business of those who do."""
    spec = {name: value for name, value in (lease.get("spec") or {}).items() if name == "leaseDurationSeconds"}
    return {**_without_managed_fields(lease), "spec": spec}


def is_renewal(before: Entry | None, now: Entry | None) -> bool:
    """Tell whether a Lease's news is but its holder's sign of life, one every few seconds."""
    if before is None or now is None or before.uid != now.uid:
        return False
    return _without_version(before.manifest) == _without_version(now.manifest)


def _without_version(manifest: Manifest) -> Manifest:
    meta = {name: value for name, value in manifest["metadata"].items() if name != "resourceVersion"}
    return {**manifest, "metadata": meta}


def _without_managed_fields(manifest: Manifest) -> Manifest:
    meta = {name: value for name, value in manifest["metadata"].items() if name != "managedFields"}
    return {**manifest, "metadata": meta}


_REDUCE = {PODS.name: reduce_pod, LEASES.name: reduce_lease}


def _conditions(deployment: Manifest) -> tuple[tuple[str, str], ...]:
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return tuple((condition["type"], condition["status"]) for condition in conditions)


def _known(key: Key) -> Key:
    """Share the strings that all keys of a kind have in common."""
    kind = KIND_OF.get((key.api_version, key.kind), DEPLOYMENTS)
    return key._replace(api_version=kind.api_version, kind=kind.name) if kind.name == key.kind else key


def _ordinal(version: str) -> int:
    return int(version) if version.isdigit() else -1


def is_older(version: str, than: str) -> bool:
    """Compare resource versions: whole numbers that grow (documented since Kubernetes 1.35); others do not compare."""
    return -1 < _ordinal(version) < _ordinal(than)
