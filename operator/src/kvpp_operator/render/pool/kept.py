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
from kvpp_operator.plan.pool import changes
from kvpp_operator.render.pool import pool_objects

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kvpp_operator.manifest import Manifest
    from kvpp_operator.plan.model import Plan

FORMAT = 1
"""Of the stored data; a newer operator must be able to apply every format it ever wrote."""


@dataclass(frozen=True)
class PoolRevision:
    """What one pool was made of at one time."""

    pool: str
    """Its name, which carries the layout's identity."""
    layout: dict[str, Any]
    wish: str
    """Of what the user wrote, as far as it shapes the service."""
    manifests: tuple[Manifest, ...]
    number: int = 1
    """Newest is highest."""


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
    return PoolRevision(plan.pool.name, layout, pool_wish(plan.resolved.spec), tuple(pool_objects(plan)))


def keep(
    fresh: PoolRevision | None, stored: Iterable[PoolRevision], in_use: Collection[str]
) -> tuple[PoolRevision, ...]:
    """Choose what is applied: the newest of the present pool while the user's wish is the same, and pools still in use.

    `in_use`: names of pools that live engines of other revisions have joined.
    """
    newest: dict[str, PoolRevision] = {}
    for revision in sorted(stored, key=lambda one: one.number):
        newest[revision.pool] = revision
    others = tuple(newest[pool] for pool in sorted(newest) if pool in in_use and (fresh is None or pool != fresh.pool))
    if fresh is None:
        return others
    kept = newest.get(fresh.pool)
    if kept is None or kept.wish == fresh.wish:
        return (kept or fresh, *others)
    same = kept.manifests == fresh.manifests  # the wish was said differently and means the same
    return (kept if same else replace(fresh, number=kept.number + 1), *others)


def cold(fresh: PoolRevision | None, stored: Iterable[PoolRevision]) -> tuple[str, ...]:
    """Name what makes the new pool start empty while an old one has blocks; empty: nothing is lost."""
    known = sorted(stored, key=lambda one: one.number)
    if fresh is None or not known or any(one.pool == fresh.pool for one in known):
        return ()
    return changes(known[-1].layout, fresh.layout)


def to_manifest(revision: PoolRevision, deployment: str, namespace: str) -> Manifest:
    """Write it down; the name tells the content, because the data of a ControllerRevision never changes."""
    data = {
        "format": FORMAT,
        "pool": revision.pool,
        "layout": revision.layout,
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
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return None
    kinds = (("pool", str), ("layout", dict), ("wish", str), ("manifests", list))
    if not all(isinstance(data.get(key), kind) for key, kind in kinds):
        return None
    number = manifest.get("revision", 0)
    return PoolRevision(data["pool"], data["layout"], data["wish"], tuple(data["manifests"]), number)
