"""A pool that starts empty: what is stored is of no use to the engines of the new spec, or is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvpp_operator.pool_layout import (
    META_KEY,
    KnownPool,
    Layout,
    known_pools,
    layout_of,
    lost,
    pool_name,
    pooled_role,
    predecessor,
    settings_of,
)
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.pool_support import pool_roles
from kvpp_operator.world import World

SIZES = {"tensor": "tensor", "prefill_context": "prefillContext", "pipeline": "pipeline"}
META_CONFIG = "spec.pooling.memcache.metaConfig"


@rule(
    "POOL050",
    severity="warning",
    evidence="guide",
    source="seed guide, Mooncake Layerwise Pooling: turning KVPP on starts a cold pool; launch facts 4.1 (KVPP object rule) and 4.2: "
    "keys tell ranks and stages apart, and a MetaService that starts anew knows no block",
    message="The pool starts cold: {changes}. Blocks that are stored now serve no engine of this spec{theirs}.",
    fix="else the new pool fills as requests come",
)
def cold_pool(resolved: Resolved, world: World) -> Iterator[Fact]:
    """A change that makes the blocks of the running pool useless."""
    known = tuple(known_pools(world.owned.values()))
    if resolved.spec.pooling is None or not known or not pool_roles(resolved):
        return
    layout, settings = layout_of(resolved), settings_of(resolved)
    old = predecessor(pool_name(resolved, layout), settings, known)
    what = lost(old, layout, settings) if old is not None else ()
    if old is not None and what:
        stays = "address" in settings and settings == old.settings
        theirs = "; empty the existing pool: its keys tell neither weights nor KVPP" if stays else ""
        edits = (*back_in_layout(old, resolved, layout), *back_in_settings(old, settings))
        yield Fact("spec.pooling", resolved.spec.pooling.backend, edits, {"changes": ", ".join(what), "theirs": theirs})


def back_in_layout(old: KnownPool, resolved: Resolved, layout: Layout) -> Iterator[Edit]:
    """Undo what one field says."""
    now = layout.to_json()
    for name, field in SIZES.items():
        before = old.layout.get(name, now[name])
        if before != now[name]:
            yield Set(f"{pooled_role(resolved).path}.parallelism.{field}", before)
    if old.layout.get("kvpp", now["kvpp"]) != now["kvpp"]:
        yield Set("spec.kvpp.enabled", old.layout["kvpp"])
    if old.layout.get("quantization", now["quantization"]) != now["quantization"]:
        before = old.layout["quantization"]
        yield Set("spec.model.quantization", before) if before else Remove("spec.model.quantization")


def back_in_settings(old: KnownPool, settings: Mapping[str, str]) -> Iterator[Edit]:
    if "address" in old.settings or "address" in settings:
        return
    for key in sorted(old.settings.keys() | settings.keys()):
        if key.startswith(META_KEY) and old.settings.get(key) != settings.get(key):
            place = paths.below(META_CONFIG, key.removeprefix(META_KEY))
            yield Set(place, old.settings[key]) if key in old.settings else Remove(place)
