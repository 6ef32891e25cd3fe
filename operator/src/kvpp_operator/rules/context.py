"""Prefill context parallelism (PCP): what goes with it, by release."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.rules.speculative import drafting
from kvpp_operator.rules.values import is_true, wins
from kvpp_operator.world import World

PCP_MANAGER = "vLLM Ascend 0.28 to 0.30, worker/v2/pcp_manager.py, validate_config; launch facts 11.1 (PCP manager)"


def with_context(resolved: Resolved) -> Iterator[tuple[ResolvedRole, str]]:
    """Roles that use PCP, and the path that says so."""
    for role in resolved.roles:
        if role.prefill_context > 1:
            yield role, f"{role.path}.parallelism.prefillContext"


def graphs_refused(resolved: Resolved, role: ResolvedRole) -> bool:
    """PCP's graph modes: eager and FULL_DECODE_ONLY; PIECEWISE too for MLA without DP."""
    mode = role.role.graph_mode
    is_sparse = resolved.model is not None and resolved.model.attention == "SFA"
    if mode == "Piecewise":
        return is_sparse or role.data > 1
    return mode in ("Full", "FullAndPiecewise")


@rule(
    "PCP001",
    severity="error",
    evidence="guide",
    until="0.30.0rc2",
    source=PCP_MANAGER,
    message="vLLM Ascend {release} has no {value} graphs with PCP for this engine: SFA models and DP run eager or "
    "FULL_DECODE_ONLY, "
    "others PIECEWISE too.",
    fix="or set prefillContext to 1, or engine.version to {first}, which nobody has validated for this",
)
def graph_mode_without_context(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with a graph mode that its release refuses."""
    for role, _path in with_context(resolved):
        if graphs_refused(resolved, role):
            path = f"{role.path}.graphMode"
            yield Fact(path, role.role.graph_mode, (Set(path, "Eager"),))


@rule(
    "PCP011",
    severity="error",
    evidence="check",
    until="0.28.0rc1",
    source="vLLM 0.28 ParallelConfig: PCP does not support data parallelism; vLLM Ascend 0.29 lifts that, vLLM 0.30 has no such check",
    message="vLLM Ascend {release} does not start with PCP and data parallelism together.",
    fix="or set data to 1, or engine.version to {first}",
)
def context_with_data_parallelism(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with DP on a release that takes one of them."""
    for role, path in with_context(resolved):
        if role.data > 1:
            yield Fact(path, role.prefill_context, (Set(path, 1),))


@rule(
    "PCP002",
    severity="warning",
    evidence="guide",
    since="latest",
    source=f"{PCP_MANAGER}; seed guide names PCP and PIECEWISE, not both together",
    message="{value} graphs with PCP were refused up to 0.30.0rc2 for this engine; nobody has validated them since.",
    fix="or set prefillContext to 1",
)
def graph_mode_unvalidated_with_context(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with a graph mode that earlier releases refused."""
    for role, _path in with_context(resolved):
        if graphs_refused(resolved, role):
            path = f"{role.path}.graphMode"
            yield Fact(path, role.role.graph_mode, (Set(path, "Eager"),))


@rule(
    "PCP003",
    severity="error",
    evidence="check",
    source="launch facts 1.2 rule 20: AscendConfig of 0.30 refuses DSA-CP with PCP, earlier releases warn and mix them",
    message="DSA-CP (additionalConfig.enable_dsa_cp) and PCP exclude each other; the engine refuses both, or "
    "before 0.30 starts with a mixture.",
    fix="or set prefillContext to 1",
)
def dsa_context_with_context(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DSA-CP together with PCP."""
    for role, _path in with_context(resolved):
        place = wins(role, "enable_dsa_cp")
        if place is not None and is_true(place.value):
            yield Fact(place.path, place.value, place.removal)


@rule(
    "PCP004",
    severity="error",
    evidence="guide",
    source="launch facts 1.2 rule 20 and 11.1 (Runner): DSA-CP needs Model Runner V1, DSpark and Eagle3 with PP need "
    "V2",
    message="DSA-CP runs on Model Runner V1 only, but {method} with pipeline parallelism needs V2.",
    fix="or leave the draft out",
)
def dsa_context_needs_the_old_runner(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DSA-CP where the draft needs the new runner."""
    for role, _path in drafting(resolved.roles, "DSpark", "Eagle3"):
        place = wins(role, "enable_dsa_cp")
        if role.pipeline > 1 and place is not None and is_true(place.value):
            method = role.speculative.method if role.speculative else ""
            yield Fact(place.path, place.value, place.removal, {"method": method})


@rule(
    "PCP005",
    severity="error",
    evidence="guide",
    source=f"{PCP_MANAGER}: multimodal inputs are not supported yet",
    message="PCP does not take models with more than text; this one is multimodal.",
    fix="",
)
def multimodal_with_context(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with a multimodal model."""
    if resolved.model is not None and resolved.model.multimodal:
        for role, path in with_context(resolved):
            yield Fact(path, role.prefill_context, one_rank(role))


def one_rank(role: ResolvedRole) -> tuple[Set, ...]:
    """PCP off, and a KVPP group that still has two ranks."""
    path = f"{role.path}.parallelism"
    more = (Set(f"{path}.tensor", 2),) if role.kvpp and role.tensor == 1 else ()
    return (Set(f"{path}.prefillContext", 1), *more)


@rule(
    "PCP006",
    severity="error",
    evidence="guide",
    until="0.29.0rc1",
    source="launch facts 1.2 rule 21: MooncakeConnectorV2 of 0.28 and 0.29 asserts PCP = 1, the KVPP guide excludes "
    "PCP with pools",
    message="vLLM Ascend {release} has no PCP together with {partner}; it came with {first}.",
    fix="or set engine.version to {first} or newer",
)
def context_with_transfer_before_its_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with P/D or a pool on a release that excludes it."""
    for role, path, partner in transferring(resolved):
        yield Fact(path, role.prefill_context, one_rank(role), {"partner": partner})


@rule(
    "PCP007",
    severity="warning",
    evidence="guide",
    since="0.30.0rc1",
    source="launch facts 1.2 rule 21 and 11.1 (PCP elsewhere): the guide of 0.30 excludes it, code and tests run it, the seed guide "
    "is silent",
    message="PCP together with {partner} runs in the engine's tests, but no guide lists it.",
    fix="",
)
def context_with_transfer(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with P/D or a pool."""
    for role, path, partner in transferring(resolved):
        yield Fact(path, role.prefill_context, one_rank(role), {"partner": partner})


def transferring(resolved: Resolved) -> Iterator[tuple[ResolvedRole, str, str]]:
    for role, path in with_context(resolved):
        if resolved.is_disaggregated:
            yield role, path, "P/D disaggregation"
        elif resolved.spec.pooling is not None:
            yield role, path, "a KV pool"


@rule(
    "PCP008",
    severity="warning",
    evidence="guide",
    source="launch facts 1.2 rule 22 and 11.1 (PCP elsewhere): a unit test allows PCP with PP, the PP guide says no",
    message="PCP with pipeline parallelism: a unit test of the engine allows it, its PP guide says it is not "
    "supported.",
    fix="",
)
def context_with_pipeline(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with PP."""
    for role, path in with_context(resolved):
        if role.pipeline > 1:
            yield Fact(path, role.prefill_context, one_rank(role))


@rule(
    "PCP009",
    severity="error",
    evidence="guide",
    source=f"{PCP_MANAGER}: speculative decoding only with MTP, Eagle3 and DSpark",
    message="PCP takes MTP, Eagle3 and DSpark drafts; DFlash does not start with it.",
    fix="or set prefillContext to 1",
)
def dflash_with_context(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PCP with DFlash."""
    for role, path in drafting(resolved.roles, "DFlash"):
        if role.prefill_context > 1:
            yield Fact(path, "DFlash", (Remove(f"{role.path}.speculative"),))
