"""KV transfer between prefill and decode, and what stands in front of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.schedulers import switched_on
from kvpp_operator.world import World

EXTRA = "spec.kvTransfer.extraConfig"
POOL_KEYS = (
    "backend", "use_layerwise", "load_async", "discard_partial_chunks", "consumer_is_to_put", "consumer_is_to_load",
    "save_decode_cache", "lookup_rpc_port", "mooncake_rpc_port", "layerwise_prefetch_layers", "layerwise_num_shared_buffers",
    "layerwise_independent_layers", "layerwise_max_transfer_blocks", "layerwise_max_transfer_bytes", "memcache_dp_init_barrier",
    "prefill_pp_size", "prefill_pp_layer_partition",
)  # fmt: skip
"""Keys that AscendStoreConnector reads (launch facts 4.1)."""

OWNERS: dict[str, str] = {
    "connectors": "the operator, which writes the children of MultiConnector",
    "kv_connector": "the operator, which picks the connector from roles and pool",
    "kv_role": "the operator, which picks it from the role",
    "kv_port": "kvPort of each role",
    "kv_ip": "the operator: it is the pod's own address",
    "engine_id": "the operator: it is distinct for each engine",
    "kv_connector_extra_config": "extraConfig itself: its keys stand here directly",
    "kv_connector_module_path": "the engine, which registers its connectors itself",
    "kv_load_failure_policy": "spec.kvTransfer.loadFailurePolicy",
    **dict.fromkeys(POOL_KEYS, "spec.pooling"),
}


@rule(
    "KVT001",
    severity="error",
    evidence="guide",
    source="seed guide, Combining Connectors: types, roles and ports of the connectors; launch facts 3",
    message="{key} is no extra key of the hand-over: it belongs to {owner}.",
    fix="",
)
def owned_connector_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A connector key that a field or the operator owns."""
    for key, value in resolved.spec.kv_transfer.extra_config.items():
        if key in OWNERS:
            yield Fact(f"{EXTRA}.{key}", value, (Remove(f"{EXTRA}.{key}"),), {"key": key, "owner": OWNERS[key]})


SIZES = {"tp_size": "tensor", "dp_size": "data", "pp_size": "pipeline"}


@rule(
    "KVT002",
    severity="error",
    evidence="check",
    source="launch facts 1.2 rule 35: a prefill or decode block must hold the engine's own sizes "
    "(check_kv_extra_config)",
    message="extraConfig.{role}.{key} says {value}, but {role} has {real}; the engine refuses the contradiction.",
    fix="",
)
def block_contradicts_the_layout(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A topology block with other sizes than the role's."""
    for role in resolved.roles:
        given = resolved.spec.kv_transfer.extra_config.get(role.name)
        block: dict[str, Any] = given if isinstance(given, dict) else {}
        for key, size in SIZES.items():
            real = getattr(role, size)
            if key in block and (block[key] != real or isinstance(block[key], bool)):
                path = f"{EXTRA}.{role.name}.{key}"
                yield Fact(path, block[key], (Set(path, real),), {"role": role.name, "key": key, "real": real})


@rule(
    "KVT003",
    severity="error",
    evidence="check",
    source="launch facts 3: prefill and decode in the extra config are maps of sizes",
    message="extraConfig.{role} is a map of sizes (tp_size, dp_size, pp_size); the engine fails on anything else.",
    fix="or leave it out: MooncakeConnectorV2 does not need it",
)
def block_is_no_map(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A topology block that is no map."""
    for name in ("prefill", "decode"):
        block = resolved.spec.kv_transfer.extra_config.get(name, {})
        if not isinstance(block, dict):
            yield Fact(f"{EXTRA}.{name}", block, (Remove(f"{EXTRA}.{name}"),), {"role": name})


@rule(
    "KVT004",
    severity="error",
    evidence="guide",
    source="launch facts 3 and 4.1: qos_priority is an integer from 0 to 4, other values stop the start",
    message="qos_priority is a whole number from 0 to 4; the engine stops at {value}.",
    fix="",
)
def priority_out_of_bounds(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A transfer priority that the engine refuses."""
    for path, config in priorities(resolved):
        value = config["qos_priority"]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 4:  # noqa: PLR2004
            yield Fact(f"{path}.qos_priority", value, (Remove(f"{path}.qos_priority"),))


@rule(
    "KVT005",
    severity="warning",
    evidence="guide",
    source="launch facts 3: qos_priority is documented for the older connectors and the pool only",
    message="qos_priority is not documented for MooncakeConnectorV2; it may have no effect.",
    fix="",
)
def priority_of_the_hand_over(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A transfer priority on MooncakeConnectorV2."""
    if resolved.is_disaggregated and "qos_priority" in resolved.spec.kv_transfer.extra_config:
        path = f"{EXTRA}.qos_priority"
        yield Fact(path, resolved.spec.kv_transfer.extra_config["qos_priority"], (Remove(path),))


def priorities(resolved: Resolved) -> Iterator[tuple[str, dict[str, Any]]]:
    places = {EXTRA: resolved.spec.kv_transfer.extra_config}
    if resolved.spec.pooling is not None:
        places["spec.pooling.extraConfig"] = resolved.spec.pooling.extra_config
    yield from ((path, config) for path, config in places.items() if "qos_priority" in config)


@rule(
    "ROUTER001",
    severity="warning",
    evidence="guide",
    source="launch facts 5.2 and 11.1 (Recompute): only the engine's own proxy repeats a request that decode ends as recomputed",
    message="Decode may end a request as recomputed, and only the Proxy router sends it to prefill again; with "
    "{value} the "
    "client gets a cut answer.",
    fix="",
)
def router_ignores_recomputed(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A router that does not handle recomputed requests."""
    router, decode = resolved.spec.router, resolved.role("decode")
    if router is None or router.type not in ("Kthena", "None") or decode is None:
        return
    recomputes = resolved.spec.kv_transfer.load_failure_policy == "Recompute"
    if recomputes or any(True for _ in switched_on(decode, "recompute_scheduler_enable")):
        yield Fact("spec.router.type", router.type, (Set("spec.router.type", "Proxy"),))


@rule(
    "ROUTER002",
    severity="error",
    evidence="guide",
    source="launch facts 11.1 (kthena): kthena's workloadPort is one number, engines on the host network have API ports of "
    "their own",
    message="kthena knows one port for all engines, but on the host network every engine has an API port of its own.",
    fix="or leave networking.hostNetwork out",
)
def kthena_on_the_host_network(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The kthena router with engines on the host network."""
    router = resolved.spec.router
    engines = sum(role.replicas for role in resolved.roles)
    if router is not None and router.type == "Kthena" and resolved.spec.networking.host_network and engines > 1:
        fix: tuple[Edit, ...] = (Set("spec.router.type", "Proxy"),)
        yield Fact("spec.router.type", router.type, fix)
