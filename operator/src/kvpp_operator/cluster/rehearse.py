"""Ask the API server what it would say to a new revision, before anything of it is applied.

A user's pod template can be wrong in ways that only the server knows: a field that does not exist, two mounts at one path, an
admission policy. Applied object by object, half of a revision would stand there, and the old one would be on its way out.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.cluster.outcome import Failure
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import key_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.manifest import Key, Manifest

BESIDE_WORKLOADS = ("Service", "PodGroup")
"""What else takes a user's words. The rest is ours alone, and its refusal is found out at no cost."""

INVALID = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


def is_new_revision(cache: Cache, wished: Iterable[Manifest]) -> bool:
    """Whether the record of the wished revision is not there yet: it is applied before the workloads."""
    return any(cache.entry(key_of(one)) is None for one in wished if one["kind"] == "ControllerRevision")


async def rehearse(cluster: Cluster, cache: Cache, wished: Iterable[Manifest]) -> tuple[Failure, ...]:
    """Refusals of objects that do not exist yet, in a server-side dry run; none: all would be taken.

    Raises `ClusterError` when the server does not answer, or is too busy.
    """
    work = [_try(cluster, key_of(one), one) for one in _first_of_its_kind(cache, wished)]
    work += [
        _try(cluster, key, pods, only=INVALID)
        for one in _first_of_its_kind(cache, wished)
        for key, pods in _as_deployments(one)
    ]
    return tuple(failure for failure in await asyncio.gather(*work) if failure is not None)


def _first_of_its_kind(cache: Cache, wished: Iterable[Manifest]) -> Iterator[Manifest]:
    """New objects; of all engines of a role only one, because they differ in name and ports alone."""
    seen: set[tuple[str, str]] = set()
    for one in wished:
        role = one["metadata"].get("labels", {}).get(names.ROLE)
        name = role if one["metadata"].get("labels", {}).get(names.ENGINE) else one["metadata"]["name"]
        takes_words = kind_of(key_of(one)).is_workload or one["kind"] in BESIDE_WORKLOADS
        if takes_words and cache.entry(key_of(one)) is None and (one["kind"], name) not in seen:
            seen.add((one["kind"], name))
            yield one


def _as_deployments(workload: Manifest) -> Iterator[tuple[Key, Manifest]]:
    """Pod templates of a LeaderWorkerSet as Deployments: of a custom resource the server checks types and no more."""
    group = workload.get("spec", {}).get("leaderWorkerTemplate")
    for template in (group["leaderTemplate"], group["workerTemplate"]) if group else ():
        labels = template["metadata"]["labels"]
        metadata = {name: workload["metadata"][name] for name in ("name", "namespace", "labels")}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        yield key_of(workload), {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


async def _try(cluster: Cluster, key: Key, manifest: Manifest, *, only: tuple[int, ...] = ()) -> Failure | None:
    """`only`: which answers count, where the object itself is not one that we would make."""
    try:
        await cluster.apply(manifest, dry_run=True)
    except ClusterError as error:
        if error.transient:
            raise
        return Failure(key, error.message, error.reason) if not only or error.status in only else None
    return None
