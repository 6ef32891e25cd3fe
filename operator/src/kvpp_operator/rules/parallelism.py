"""Parallel sizes: the KVPP group, pipeline stages, experts."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Cel, Fact, Set, rule
from kvpp_operator.world import World

KVPP_ROLES = ("unified", "prefill")
ALL_ROLES = ("unified", "prefill", "decode")


@rule(
    "PAR001",
    severity="error",
    evidence="guide",
    validation="seed",
    source="seed guide, Configuration Parameters: the group size follows TP x PCP; launch facts 1.1: a group of one "
    "is a "
    "silent no-op of the engine",
    message="KVPP shares caches over TP x PCP ranks; a group of one saves nothing and the engine switches KVPP off "
    "silently.",
    fix="or raise prefillContext, or set kvpp.enabled to false",
    cel=tuple(
        Cel(
            f"!self.kvpp.enabled || !has(self.{role}) || "
            f"self.{role}.parallelism.tensor * self.{role}.parallelism.prefillContext >= 2",
            field_path=f".{role}.parallelism.tensor",
        )
        for role in KVPP_ROLES
    ),
)
def group_of_one(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A KVPP group of one rank."""
    for role in resolved.kvpp_roles:
        if role.role.parallelism.kvpp_group < 2:  # noqa: PLR2004 - a group is two or more
            path = f"{role.path}.parallelism.tensor"
            yield Fact(path, role.tensor, (Set(path, 2),))


@rule(
    "PAR002",
    severity="error",
    evidence="check",
    validation="ci",
    source="seed guide, Supported Features, DCP: not supported; launch facts 1.2 rule 4",
    message="DCP can't be combined with KVPP.",
    fix="or set kvpp.enabled to false",
    cel=tuple(
        Cel(
            f"!self.kvpp.enabled || !has(self.{role}) || self.{role}.parallelism.decodeContext == 1",
            field_path=f".{role}.parallelism.decodeContext",
        )
        for role in KVPP_ROLES
    ),
)
def decode_context_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DCP on a KVPP role."""
    for role in resolved.kvpp_roles:
        size = role.role.parallelism.decode_context
        if size != 1:
            path = f"{role.path}.parallelism.decodeContext"
            yield Fact(path, size, (Set(path, 1),))


@rule(
    "PAR003",
    severity="error",
    evidence="check",
    source="vLLM 0.30 ParallelConfig: without PCP DCP re-uses the TP ranks; with PCP it is off, spans PCP, or TP x PCP",
    message="DCP re-uses other ranks: tensor must be a multiple of decodeContext; with PCP, decodeContext is 1, "
    "prefillContext "
    "or tensor x prefillContext.",
    fix="",
    cel=tuple(
        Cel(
            f"!has(self.{role}) || (self.{role}.parallelism.prefillContext == 1 "
            f"? self.{role}.parallelism.tensor % self.{role}.parallelism.decodeContext == 0 "
            f": self.{role}.parallelism.decodeContext in [1, self.{role}.parallelism.prefillContext, "
            f"self.{role}.parallelism.tensor * self.{role}.parallelism.prefillContext])",
            field_path=f".{role}.parallelism.decodeContext",
        )
        for role in ALL_ROLES
    ),
)
def decode_context_does_not_fit(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DCP that does not fit TP and PCP."""
    for role in resolved.roles:
        size, context = role.role.parallelism.decode_context, role.prefill_context
        fits = size in (1, context, role.tensor * context) if context > 1 else role.tensor % size == 0
        if not fits:
            path = f"{role.path}.parallelism.decodeContext"
            yield Fact(path, size, (Set(path, 1),))


@rule(
    "PAR013",
    severity="error",
    evidence="check",
    source="vLLM Ascend 0.28 to 0.30 platform.py: DCP of SFA with a replicated indexer spans PCP, or TP x PCP",
    message="On an SFA model DCP spans all of TP x PCP or nothing: decodeContext is 1, {context} (PCP) or {whole} (TP x PCP).",
    fix="or set it to {whole}",
)
def part_of_the_ranks_with_indexer(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DCP of an SFA model over a part of the ranks."""
    if resolved.model is None or resolved.model.attention != "SFA":
        return
    for role in resolved.roles:
        size, context = role.role.parallelism.decode_context, role.prefill_context
        whole = role.tensor * context
        if size not in (1, context, whole):
            path = f"{role.path}.parallelism.decodeContext"
            yield Fact(path, size, (Set(path, 1),), {"context": context, "whole": whole})


@rule(
    "PAR004",
    severity="warning",
    evidence="guide",
    source="seed guide, Supported Features, DCP: not supported with KVPP; decode runs without KVPP, and the pull "
    "connector of "
    "0.30 reads a KVPP producer with DCP ranks (pull_worker.py), but no test does",
    message="Decode uses DCP beside a KVPP prefill; the connector takes it, but nobody has validated it.",
    fix="",
)
def decode_context_beside_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DCP on decode while prefill runs KVPP."""
    decode = resolved.role("decode")
    if decode is not None and resolved.kvpp_roles and decode.role.parallelism.decode_context > 1:
        path = "spec.decode.parallelism.decodeContext"
        yield Fact(path, decode.role.parallelism.decode_context, (Set(path, 1),))


@rule(
    "PAR005",
    severity="error",
    evidence="check",
    validation="ci",
    source="seed guide, Supported Features, EP: requires an MoE model; vLLM 0.30 ModelConfig: no experts to spread",
    message="Expert parallelism needs an MoE model; this one has no experts.",
    fix="",
)
def expert_without_experts(resolved: Resolved, _: World) -> Iterator[Fact]:
    """EP on a dense model."""
    if resolved.model is None or resolved.model.moe:
        return
    for role in resolved.roles:
        if role.role.parallelism.expert:
            path = f"{role.path}.parallelism.expert"
            yield Fact(path, value=True, fix=(Set(path, value=False),))


@rule(
    "PAR012",
    severity="error",
    evidence="check",
    source="vLLM 0.30 ModelConfig.verify_with_parallel_config: attention heads must divide by TP",
    message="TP splits the {heads} attention heads of {model} evenly; they don't divide by {value}.",
    fix="",
)
def heads_do_not_divide(resolved: Resolved, _: World) -> Iterator[Fact]:
    """TP that does not divide the attention heads."""
    model = resolved.model
    for role in resolved.roles:
        if model is not None and model.attention_heads is not None and model.attention_heads % role.tensor:
            path = f"{role.path}.parallelism.tensor"
            smaller = next(size for size in range(role.tensor, 0, -1) if model.attention_heads % size == 0)
            fix = (Set(path, max(smaller, 2 if role.kvpp else 1)),)
            yield Fact(path, role.tensor, fix, {"heads": model.attention_heads, "model": model.name})
