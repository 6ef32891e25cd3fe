"""`pooling.extraConfig`: keys of AscendStoreConnector that the operator owns, and those that KVPP forbids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths, shape
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.rules.pool_support import SEED_LAYERWISE, SEED_MEMCACHE, layerwise_of
from kvpp_operator.rules.transfer import POOL_KEYS
from kvpp_operator.world import World

EXTRA = "spec.pooling.extraConfig"
SWITCHES = (
    "use_layerwise", "load_async", "discard_partial_chunks", "consumer_is_to_put", "consumer_is_to_load", "save_decode_cache",
    "memcache_dp_init_barrier",
)  # fmt: skip
NUMBERS = {
    "layerwise_prefetch_layers": 1, "layerwise_num_shared_buffers": 0, "layerwise_max_transfer_blocks": 0,
    "layerwise_max_transfer_bytes": 0, "prefill_pp_size": 1,
}  # fmt: skip
WRITE_BACK = ("consumer_is_to_put", "consumer_is_to_load")
KNOWN = (*POOL_KEYS, "qos_priority")


def extra(resolved: Resolved) -> dict[str, Any]:
    return resolved.spec.pooling.extra_config if resolved.spec.pooling is not None else {}


def written_by_us(resolved: Resolved) -> dict[str, tuple[Any, str]]:
    """What the operator writes for each key of its own, and where it comes from."""
    pooling, layerwise = resolved.spec.pooling, layerwise_of(resolved)
    if pooling is None:
        return {}
    told = {
        "backend": (pooling.backend.lower(), "spec.pooling.backend"),
        "use_layerwise": (layerwise is not None, "spec.pooling.mooncake.layerwise"),
        "lookup_rpc_port": ("0", "the operator: it is a name inside each pod"),
        "mooncake_rpc_port": (None, "the operator: it is the old name of lookup_rpc_port"),
    }
    if layerwise is not None:
        told["load_async"] = (False, f"the operator: {SEED_LAYERWISE} needs it off, layers are loaded one by one")
        told["layerwise_prefetch_layers"] = (
            layerwise.prefetch_layers,
            "spec.pooling.mooncake.layerwise.prefetchLayers",
        )
    return told


@rule(
    "POOL020",
    severity="error",
    evidence="guide",
    source=f"{SEED_MEMCACHE} and Mooncake Layerwise Pooling: backend, use_layerwise and load_async of each form; "
    "launch facts 4.1",
    message="{key} {value} contradicts what the deployment says; it belongs to {owner}.",
    fix="",
)
def owned_pool_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A pool key that contradicts the deployment's fields."""
    told = written_by_us(resolved)
    for key, value in extra(resolved).items():
        if key in told and not same(value, told[key][0]):
            yield Fact(f"{EXTRA}.{key}", value, (Remove(f"{EXTRA}.{key}"),), {"key": key, "owner": told[key][1]})


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1."""
    return type(one) is type(other) and one == other


@rule(
    "POOL021",
    severity="error",
    evidence="guide",
    source=f"{SEED_MEMCACHE}: keep discard_partial_chunks=true, the default",
    message="With KVPP the pool keeps whole chunks only: discard_partial_chunks stays true.",
    fix="",
)
def partial_chunks_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Partial chunks in a pool of a KVPP role."""
    value = extra(resolved).get("discard_partial_chunks", True)
    if resolved.kvpp_roles and value is not True:
        yield Fact(f"{EXTRA}.discard_partial_chunks", value, (Remove(f"{EXTRA}.discard_partial_chunks"),))


@rule(
    "POOL022",
    severity="error",
    evidence="guide",
    source=f"{SEED_MEMCACHE}: consumer write-back is not supported with KVPP; launch facts 1.2 rule 26 and 11.1 (KV "
    "events and write-back): with any pool",
    message="{key} lets decode work on the pool; consumer write-back is not supported with KVPP, on any role.",
    fix="",
)
def write_back_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Consumer write-back to the pool of a KVPP role."""
    if not resolved.kvpp_roles:
        return
    for key in WRITE_BACK:
        value = extra(resolved).get(key, False)
        if value is not False:
            yield Fact(f"{EXTRA}.{key}", value, (Remove(f"{EXTRA}.{key}"),), {"key": key})


@rule(
    "POOL023",
    severity="warning",
    evidence="guide",
    source=f"{SEED_MEMCACHE}: the example loads asynchronously, whole blocks; guides of 0.28 to 0.30 require it; "
    "launch facts 1.2 rule 25",
    message="Guides show the memcache pool with load_async true only; nobody has validated false with KVPP.",
    fix="",
)
def synchronous_memcache(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A memcache pool that loads synchronously."""
    pooling = resolved.spec.pooling
    if (
        pooling is not None
        and pooling.backend == "Memcache"
        and resolved.kvpp_roles
        and extra(resolved).get("load_async") is False
    ):
        yield Fact(f"{EXTRA}.load_async", value=False, fix=(Remove(f"{EXTRA}.load_async"),))


@rule(
    "POOL024",
    severity="warning",
    evidence="guide",
    source="launch facts 4.1: the keys that AscendStoreConnector reads",
    message="AscendStoreConnector reads no key {key}{suggestion}; it has no effect.",
    fix="",
)
def unknown_pool_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A pool key that nothing reads."""
    for key, value in extra(resolved).items():
        if key not in KNOWN:
            meant = shape.closest(key, KNOWN)
            place = paths.below(EXTRA, key)
            yield Fact(
                place, value, (Remove(place),), {"key": key, "suggestion": f"; the closest is {meant}" if meant else ""}
            )


@rule(
    "POOL025",
    severity="error",
    evidence="guide",
    source='launch facts 1.2 rule 29 and 4.1: switches are JSON booleans (the text "false" counts as true), sizes whole numbers',
    message="{key} must be {expected}.",
    fix="",
)
def wrong_kind_of_pool_value(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A pool value of the wrong type."""
    for key, value in extra(resolved).items():
        place = paths.below(EXTRA, key)
        if key in SWITCHES and not isinstance(value, bool):
            yield Fact(place, value, (Remove(place),), {"key": key, "expected": "true or false, without quotes"})
        least = NUMBERS.get(key)
        if least is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            yield Fact(place, value, (Remove(place),), {"key": key, "expected": f"a whole number from {least} on"})


@rule(
    "POOL026",
    severity="warning",
    evidence="guide",
    source=f"{SEED_LAYERWISE}: no cross-layer reuse of persistent owner caches",
    message="{key} has no effect with KVPP: the owners' caches are not reused across layers.",
    fix="",
)
def layer_reuse_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Layer reuse asked for with KVPP."""
    for key in ("layerwise_num_shared_buffers", "layerwise_independent_layers"):
        if resolved.kvpp_roles and key in extra(resolved):
            yield Fact(f"{EXTRA}.{key}", extra(resolved)[key], (Remove(f"{EXTRA}.{key}"),), {"key": key})


JOINING = ("MMC_LOCAL_CONFIG_PATH", "MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER")


@rule(
    "POOL027",
    severity="error",
    evidence="guide",
    source=f"{SEED_MEMCACHE}: decode must not write to the pool of a KVPP prefill; contract, pooling: decode takes "
    "no part",
    message="Decode takes no part in the pool: its caches have another layout than KVPP's owners store, and "
    "kv_consumer is "
    "outside the validated scope.",
    fix="",
)
def decode_joins_the_pool(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Decode that asks to join the pool."""
    decode = resolved.role("decode")
    if decode is None or resolved.spec.pooling is None:
        return
    for index, variable in enumerate(decode.role.env):
        if variable.name in JOINING:
            path = f"{decode.path}.env[{index}]"
            yield Fact(path, variable.name, (Remove(path),))


@rule(
    "POOL028",
    severity="error",
    evidence="guide",
    source=f"{SEED_MEMCACHE}: KV events are not supported with KVPP; launch facts 1.2 rule 26",
    message="KV events are not supported with a pool of KVPP roles: {value} switches them on in the MetaService.",
    fix="",
)
def events_of_the_meta_service(resolved: Resolved, _: World) -> Iterator[Fact]:
    """KV events of the MetaService with KVPP."""
    pooling = resolved.spec.pooling
    if pooling is None or pooling.memcache is None or not resolved.kvpp_roles:
        return
    key = "ock.mmc.kv_events.enable"
    if pooling.memcache.meta_config.get(key, "false").lower() in ("true", "1"):
        path = paths.below("spec.pooling.memcache.metaConfig", key)
        yield Fact(path, key, (Set(path, "false"),))
