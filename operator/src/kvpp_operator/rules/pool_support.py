"""KV pools: which backend and form goes with KVPP, with which release and which layout."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.api.pooling import Layerwise, Pooling
from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Cel, Edit, Fact, Remove, Set, rule
from kvpp_operator.world import World

SEED_MEMCACHE = "seed guide, Memcache Pooling"
SEED_LAYERWISE = "seed guide, Mooncake Layerwise Pooling"
LAYERWISE = "spec.pooling.mooncake.layerwise"


def pool_of(resolved: Resolved) -> Pooling | None:
    return resolved.spec.pooling


def layerwise_of(resolved: Resolved) -> Layerwise | None:
    """The layerwise form, where the pool has it."""
    pooling = resolved.spec.pooling
    return pooling.mooncake.layerwise if pooling is not None and pooling.mooncake is not None else None


def pool_roles(resolved: Resolved) -> tuple[ResolvedRole, ...]:
    """Roles that join the pool: decode never does (contract, pooling)."""
    return tuple(role for role in resolved.roles if role.name != "decode") if resolved.spec.pooling is not None else ()


@rule(
    "POOL001",
    severity="error",
    evidence="check",
    until="0.30.0rc2",
    source="seed guide, Combining Connectors, against launch facts 1.2 rules 12 and 13: KVPPConfig up to 0.30.0rc2 "
    "takes no "
    "MultiConnector",
    message="A pool beside P/D needs MultiConnector, which vLLM Ascend {release} refuses with KVPP; the first that "
    "takes it is {first}.",
    fix="or leave out the pool, or set kvpp.enabled to false",
)
def pool_beside_disaggregation(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A pool in a P/D deployment on a release without MultiConnector for KVPP."""
    if resolved.spec.pooling is not None and resolved.is_disaggregated and resolved.kvpp_roles:
        yield Fact("spec.pooling", resolved.spec.pooling.backend, (Set("spec.engine.version", "latest"),))


@rule(
    "POOL002",
    severity="error",
    evidence="guide",
    until="0.30.0rc2",
    source="launch facts 1.3, row Mooncake layerwise, and 11.1 (Pools): no released image has the client calls it "
    "needs",
    message="vLLM Ascend {release} has no layerwise Mooncake pool that starts; the first that has is {first}.",
    fix="or use another pool",
)
def layerwise_before_its_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The layerwise Mooncake pool on a release without it."""
    if layerwise_of(resolved) is not None:
        yield Fact(LAYERWISE, layerwise_of(resolved) and "layerwise", (Set("spec.engine.version", "latest"),))


@rule(
    "POOL003",
    severity="warning",
    evidence="guide",
    since="latest",
    source=f"{SEED_LAYERWISE}: experimental; validated on one node with TP8 and eager execution, GLM-5.2 validation "
    "pending",
    message="Layerwise Mooncake pooling with KVPP is experimental: validated with TP8, eager, on one node only.",
    fix="or use Memcache",
)
def layerwise_is_experimental(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The layerwise Mooncake pool with KVPP."""
    if layerwise_of(resolved) is not None and resolved.kvpp_roles:
        yield Fact(LAYERWISE, "layerwise", (Remove("spec.pooling"),))


@rule(
    "POOL004",
    severity="error",
    evidence="guide",
    source=f"seed guide, Supported Features, KV pooling rows; {SEED_LAYERWISE}; launch facts 1.2 rule 27",
    message="With KVPP a Mooncake pool loads layer by layer only; whole-block pooling with KVPP is Memcache's.",
    fix="or use Memcache",
    cel=(
        Cel(
            "!self.kvpp.enabled || !has(self.pooling) || self.pooling.backend != 'Mooncake' || "
            "(has(self.pooling.mooncake) && has(self.pooling.mooncake.layerwise))",
            field_path=".pooling",
        ),
    ),
)
def whole_block_mooncake_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A Mooncake pool of whole blocks with KVPP."""
    pooling = resolved.spec.pooling
    if (
        pooling is not None
        and pooling.backend == "Mooncake"
        and resolved.spec.kvpp.enabled
        and layerwise_of(resolved) is None
    ):
        yield Fact("spec.pooling", "Mooncake", (Set(LAYERWISE, {"prefetchLayers": 2}),))


@rule(
    "POOL005",
    severity="error",
    evidence="guide",
    source="contract, pooling: memcache and mooncake hold the settings of their own backend",
    message="A pool has the settings of its own backend only: memcache with Memcache, mooncake with Mooncake.",
    fix="",
    cel=(
        Cel(
            "!has(self.pooling) || (self.pooling.backend == 'Memcache' ? !has(self.pooling.mooncake) : "
            "!has(self.pooling.memcache))",
            field_path=".pooling",
        ),
    ),
)
def settings_of_the_other_backend(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Settings of a backend that the pool does not use."""
    pooling = resolved.spec.pooling
    if pooling is None:
        return
    other = {"Memcache": "mooncake", "Mooncake": "memcache"}[pooling.backend]
    if getattr(pooling, other) is not None:
        yield Fact("spec.pooling", pooling.backend, (Remove(f"spec.pooling.{other}"),))


@rule(
    "POOL006",
    severity="error",
    evidence="guide",
    until="0.28.0rc1",
    source="launch facts 1.3, row memcache kv_both: the KVPP guide of 0.28 knows kv_producer only",
    message="With KVPP the memcache pool of vLLM Ascend {release} takes kv_role kv_producer only; Both came with "
    "{first}.",
    fix="or set engine.version to {first} or newer",
)
def both_before_its_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A memcache pool with role Both on the release that takes producers only."""
    pooling = resolved.spec.pooling
    if pooling is None or pooling.backend != "Memcache" or not resolved.kvpp_roles:
        return
    is_both = pooling.role == "Both" or (pooling.role is None and not resolved.is_disaggregated)
    if is_both:
        yield Fact("spec.pooling.role", pooling.role, (Set("spec.pooling.role", "Producer"),))


@rule(
    "POOL007",
    severity="warning",
    evidence="guide",
    source=f"{SEED_LAYERWISE}: shows kv_both and no other role",
    message="The guide shows the layerwise pool with role Both only; nobody has validated Producer.",
    fix="",
)
def layerwise_producer(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A layerwise pool with another role than Both."""
    pooling = resolved.spec.pooling
    if pooling is not None and layerwise_of(resolved) is not None and pooling.role == "Producer":
        yield Fact("spec.pooling.role", "Producer", (Set("spec.pooling.role", "Both"),))


@rule(
    "POOL008",
    severity="error",
    evidence="check",
    source=f"{SEED_LAYERWISE}: restrictions on PCP and DCP still apply; launch facts 1.2 rule 28 "
    "(mooncake_layerwise.py)",
    message="The layerwise Mooncake pool runs without PCP and DCP; the engine refuses {size} {value}.",
    fix="or use Memcache",
)
def layerwise_with_context_parallelism(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A layerwise pool with PCP or DCP."""
    if layerwise_of(resolved) is None:
        return
    for role in pool_roles(resolved):
        sizes = {"prefillContext": role.prefill_context, "decodeContext": role.role.parallelism.decode_context}
        for name, size in sizes.items():
            if size > 1:
                path = f"{role.path}.parallelism.{name}"
                more = (Set(f"{role.path}.parallelism.tensor", 2),) if role.kvpp and role.tensor == 1 else ()
                yield Fact(path, size, (Set(path, 1), *more), {"size": name})


@rule(
    "POOL009",
    severity="warning",
    evidence="guide",
    source=f"{SEED_LAYERWISE}: PP was not part of its validation; launch facts 11.1 (Layerwise with PP)",
    message="The layerwise Mooncake pool with pipeline parallelism is not validated.",
    fix="",
)
def layerwise_with_pipeline(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A layerwise pool with PP."""
    for role in pool_roles(resolved) if layerwise_of(resolved) is not None else ():
        if role.pipeline > 1:
            yield Fact(f"{role.path}.parallelism.pipeline", role.pipeline, (Remove("spec.pooling"),))


@rule(
    "POOL010",
    severity="error",
    evidence="guide",
    source=f"{SEED_LAYERWISE}: the restriction on a topology mismatch of producer and consumer still applies",
    message="With the layerwise Mooncake pool prefill and decode need the same tensor size; prefill has {prefill}, "
    "decode {value}.",
    fix="",
)
def layerwise_with_unequal_tensor(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A layerwise pool where prefill and decode have other TP sizes."""
    prefill, decode = resolved.role("prefill"), resolved.role("decode")
    if layerwise_of(resolved) is None or prefill is None or decode is None or prefill.tensor == decode.tensor:
        return
    path = "spec.decode.parallelism"
    fix: tuple[Edit, ...] = (Set(f"{path}.tensor", prefill.tensor),)
    if decode.data > 1:  # the same number of NPUs where that can be had
        fix = (*fix, Set(f"{path}.data", max(1, decode.devices // prefill.tensor)))
    yield Fact(f"{path}.tensor", decode.tensor, fix, {"prefill": prefill.tensor})


@rule(
    "POOL011",
    severity="warning",
    evidence="guide",
    source="launch facts 1.2 rule 30: use_layerwise forces PIECEWISE when graphs are on",
    message="A layerwise pool makes the engine run PIECEWISE graphs; graphMode {value} will not hold.",
    fix="",
)
def layerwise_with_full_graphs(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A layerwise pool with full graphs."""
    for role in pool_roles(resolved) if layerwise_of(resolved) is not None else ():
        if role.role.graph_mode not in ("Eager", "Piecewise"):
            path = f"{role.path}.graphMode"
            yield Fact(path, role.role.graph_mode, (Set(path, "Piecewise"),))
