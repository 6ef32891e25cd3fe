"""A pool's own objects as they run, kept in a ControllerRevision of their own.

A MetaService that starts anew has forgotten every block. So what runs, runs on (ADR 5): a newer operator, whose render
may differ, applies what is kept until the *user* changes what the service is made of. Engines of an older revision keep the
pool of their layout until they are gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvpp_operator import names
from kvpp_operator.api.pooling import Memcache, Mooncake
from kvpp_operator.api.v1alpha1 import Spec, dump
from kvpp_operator.pool_layout import FORMAT, named, settings_of
from kvpp_operator.render.pool import pool_objects

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kvpp_operator.manifest import Manifest
    from kvpp_operator.plan.model import Plan
    from kvpp_operator.revision import Revision


@dataclass(frozen=True)
class PoolRevision:
    """What one pool was made of at one time."""

    pool: str
    """Its name, which carries the layout's identity."""
    layout: dict[str, Any]
    settings: dict[str, str]
    """What the service would forget its blocks over (`pool_layout.settings_of`)."""
    wish: str
    """Of what the user wrote, as far as it shapes the service."""
    manifests: tuple[Manifest, ...]
    number: int = 1
    """Newest is highest."""


@dataclass(frozen=True)
class KeptPools:
    applied: tuple[PoolRevision, ...] = ()
    """The present pool first, then those that engines of older revisions are in."""
    remembered: tuple[PoolRevision, ...] = ()
    """Without a service any more; while a rollout is under way they tell what it costs."""


def pool_wish(spec: Spec) -> str:
    """Hash what shapes the service: engines' own settings (share, protocol, local keys, replicas) are left out."""
    pooling = spec.pooling
    memcache = (pooling.memcache if pooling else None) or Memcache()
    mooncake = (pooling.mooncake if pooling else None) or Mooncake()
    is_memcache = pooling is not None and pooling.backend == "Memcache"
    wish = {
        "service": dump(memcache.meta_service if is_memcache else mooncake.master),
        "keys": memcache.meta_config if is_memcache else {},
        "engine": [spec.engine.version, dump(spec.engine.image)],
        "secrets": [secret.name for secret in spec.image_pull_secrets],
        "hostNetwork": spec.networking.host_network,
    }
    return names.digest(json.dumps(wish, sort_keys=True, ensure_ascii=False), 16)


def pool_revision(plan: Plan) -> PoolRevision | None:
    """Make what this operator would run today; None without a pool. An existing pool has no manifests, but a layout."""
    if plan.pool is None:
        return None
    layout = plan.pool.layout.to_json()
    manifests = json.loads(json.dumps(pool_objects(plan)))  # as it comes back from the API server
    wish, settings = pool_wish(plan.resolved.spec), settings_of(plan.resolved)
    return PoolRevision(plan.pool.name, layout, settings, wish, tuple(manifests))


def keep(
    fresh: PoolRevision | None,
    stored: Iterable[PoolRevision],
    in_use: Collection[str],
    *,
    settled: bool = True,
) -> KeptPools:
    """Choose what is applied: the newest of the present pool while the user's wish is the same, and pools still in use.

    `in_use`: names of pools that live engines of other revisions have joined. `settled`: all that is wished is up.
    """
    known = sorted(stored, key=lambda one: one.number)
    newest = {revision.pool: revision for revision in known}
    others = tuple(newest[pool] for pool in sorted(newest) if pool in in_use and (fresh is None or pool != fresh.pool))
    if fresh is None:
        return KeptPools(others)
    kept = newest.get(fresh.pool)
    if kept is not None and (kept.wish == fresh.wish or means_the_same(kept, fresh)):
        chosen = kept
    else:
        chosen = replace(fresh, number=known[-1].number + 1 if known else 1)
    applied = (chosen, *others)
    remembered = () if settled and chosen is kept else tuple(one for one in known if one not in applied)
    return KeptPools(applied, remembered)


def means_the_same(kept: PoolRevision, fresh: PoolRevision) -> bool:
    """Whether the wish was only said differently. An existing pool has no manifests; it is another one at another address."""
    return kept.manifests == fresh.manifests and (bool(fresh.manifests) or kept.settings == fresh.settings)


def kept_pools(plan: Plan, revision: Revision, owned: Collection[Manifest]) -> KeptPools:
    """Choose by what is there: `owned` are the deployment's live objects, `revision` is what its engines are made from."""
    fresh, name = pool_revision(plan), plan.resolved.name
    wanted = {pool for template in revision.templates.values() for pool in joined(template["workload"], name)}
    live = {pool for manifest in owned for pool in joined(manifest, name)}
    stored = [found for manifest in owned if (found := from_manifest(manifest)) is not None]
    chosen = fresh if fresh is not None and fresh.pool in wanted else None
    return keep(chosen, stored, wanted | live, settled=is_settled(plan, revision, owned))


def joined(workload: Manifest, deployment: str) -> Iterator[str]:
    """Name the pool that an engine's pods join."""
    spec = workload.get("spec") or {}
    for template in (spec.get("template"), (spec.get("leaderWorkerTemplate") or {}).get("leaderTemplate")):
        annotations = ((template or {}).get("metadata") or {}).get("annotations") or {}
        if identity := annotations.get(names.POOL):
            yield named(deployment, identity)


def is_settled(plan: Plan, revision: Revision, owned: Iterable[Manifest]) -> bool:
    """Whether all engines of the revision and the pool's service are up, and none of another revision is left."""
    engines, services = [], []
    for manifest in owned:
        labels = manifest["metadata"].get("labels") or {}
        if manifest["kind"] in ("Deployment", "LeaderWorkerSet") and names.ENGINE in labels:
            engines.append(manifest)
        elif plan.pool is not None and manifest["metadata"]["name"] == plan.pool.name:
            services += [manifest] if manifest["kind"] in ("Deployment", "StatefulSet") else []
    current = [one for one in engines if one["metadata"]["labels"].get(names.REVISION) == revision.hash]
    return len(current) == len(engines) == len(plan.engines) and all(map(is_up, [*current, *services]))


def is_up(workload: Manifest) -> bool:
    """Whether the newest wish is seen and every pod of it ready."""
    status, wanted = workload.get("status") or {}, (workload.get("spec") or {}).get("replicas", 1)
    seen = status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 0)
    is_group = workload["kind"] == "LeaderWorkerSet"  # whose status names no generation
    up = min(status.get("updatedReplicas", 0), status.get("readyReplicas", 0))
    return bool((seen or is_group) and up >= wanted)


def manifests_of(kept: KeptPools, deployment: str, namespace: str) -> list[Manifest]:
    """List the services' objects and all records."""
    records = [to_manifest(one, deployment, namespace) for one in (*kept.applied, *kept.remembered)]
    return [*records, *(manifest for one in kept.applied for manifest in one.manifests)]


def to_manifest(revision: PoolRevision, deployment: str, namespace: str) -> Manifest:
    """Write it down; the name tells the content, because the data of a ControllerRevision never changes."""
    data = {
        "format": FORMAT,
        "pool": revision.pool,
        "layout": revision.layout,
        "settings": revision.settings,
        "wish": revision.wish,
        "manifests": list(revision.manifests),
    }
    content = names.digest(json.dumps(data, sort_keys=True, ensure_ascii=False))
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{revision.pool}-{content}",
            "namespace": namespace,
            "labels": {**names.base_labels(deployment), "app.kubernetes.io/component": "pool"},
        },
        "revision": revision.number,
        "data": data,
    }


def from_manifest(manifest: Manifest) -> PoolRevision | None:
    """Read it back; None when the data is not ours to read: of an engine's revision, or of a later format."""
    data = manifest.get("data")
    if manifest["kind"] != "ControllerRevision" or not isinstance(data, dict) or data.get("format") != FORMAT:
        return None
    kinds = (("pool", str), ("layout", dict), ("settings", dict), ("wish", str), ("manifests", list))
    if not all(isinstance(data.get(key), kind) for key, kind in kinds):
        return None
    number = manifest.get("revision", 0)
    return PoolRevision(data["pool"], data["layout"], data["settings"], data["wish"], tuple(data["manifests"]), number)
