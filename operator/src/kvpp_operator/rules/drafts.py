"""Draft models: what a method needs, and what prefill and decode must have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.api.role import Speculative
from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.speculative import drafting
from kvpp_operator.world import World

PP_MATRIX = "PP guide of vLLM Ascend 0.30 (pipeline_parallel.md), PP with Speculative Decoding; launch facts 6.2"
DRAFT = {"persistentVolumeClaim": {"claimName": "weights", "path": "draft"}}


@rule(
    "SPEC005",
    severity="error",
    evidence="check",
    source="vLLM 0.30 SpeculativeConfig: these methods have no draft without a model of their own",
    message="{value} drafts with a model of its own; draftModel says where its weights are.",
    fix="with the place of your draft's weights",
)
def draft_model_is_missing(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Eagle3 or DFlash without a draft model."""
    for role, path in drafting(resolved.roles, "Eagle3", "DFlash"):
        if role.speculative is not None and role.speculative.draft_model is None:
            yield Fact(path, role.speculative.method, (Set(f"{role.path}.speculative.draftModel", DRAFT),))


@rule(
    "SPEC006",
    severity="warning",
    evidence="guide",
    source="vLLM 0.30 SpeculativeConfig: without a model DSpark looks for its draft in the target's own weights",
    message="DSpark without draftModel loads the draft from the model's own weights; few checkpoints carry one.",
    fix="with the place of your draft's weights",
)
def dspark_without_draft_model(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DSpark without a draft model."""
    for role, path in drafting(resolved.roles, "DSpark"):
        if role.speculative is not None and role.speculative.draft_model is None:
            yield Fact(path, "DSpark", (Set(f"{role.path}.speculative.draftModel", DRAFT),))


@rule(
    "SPEC007",
    severity="warning",
    evidence="guide",
    source="vLLM 0.30 SpeculativeConfig: MTP layers come with the model; a given model is loaded instead",
    message="MTP layers come with the model; draftModel makes the engine load them from another place.",
    fix="",
)
def draft_model_for_mtp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A draft model for MTP."""
    for role, _path in drafting(resolved.roles, "MTP"):
        if role.speculative is not None and role.speculative.draft_model is not None:
            path = f"{role.path}.speculative.draftModel"
            yield Fact(path, role.speculative.draft_model.chosen(), (Remove(path),))


@rule(
    "SPEC008",
    severity="error",
    evidence="check",
    source="seed guide, Speculative decoding: when the method is supported by the model; the catalogue's draft layers",
    message="{model} has no MTP layers, so MTP has nothing to draft with.",
    fix="or use a method with a draft model",
)
def model_without_mtp_layers(resolved: Resolved, _: World) -> Iterator[Fact]:
    """MTP on a model without MTP layers."""
    if resolved.model is None or resolved.model.draft_layers != 0:
        return
    for role, path in drafting(resolved.roles, "MTP"):
        yield Fact(path, "MTP", (Remove(f"{role.path}.speculative"),), {"model": resolved.model.name})


@rule(
    "SPEC009",
    severity="error",
    evidence="check",
    source="vLLM 0.30 SpeculativeConfig: num_speculative_tokens must be divisible by n_predict when it is larger",
    message="{value} draft tokens don't fit {layers} MTP layers: more tokens than layers must be a multiple of them.",
    fix="",
)
def tokens_do_not_fit_mtp_layers(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A number of draft tokens that the MTP layers can't make."""
    layers = resolved.model.draft_layers if resolved.model is not None else None
    if not layers:
        return
    for role, _path in drafting(resolved.roles, "MTP"):
        tokens = role.speculative.tokens if role.speculative is not None else 1
        if tokens > layers and tokens % layers:
            path = f"{role.path}.speculative.tokens"
            yield Fact(path, tokens, (Set(path, layers),), {"layers": layers})


@rule(
    "SPEC010",
    severity="error",
    evidence="guide",
    source="launch facts 11.1 (Draft layers): decode needs every local layer on the producer, else its metadata is missing layers",
    message="Decode drafts with {value}, but prefill does not: the draft's KV is missing on prefill and every "
    "hand-over fails.",
    fix="",
)
def decode_drafts_alone(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Decode speculates with a method that prefill does not run."""
    prefill, decode = resolved.role("prefill"), resolved.role("decode")
    if prefill is None or decode is None or decode.speculative is None:
        return
    method = decode.speculative.method
    if prefill.speculative is None or prefill.speculative.method != method:
        yield Fact("spec.decode.speculative.method", method, same_on_prefill(prefill, decode.speculative))


def same_on_prefill(prefill: ResolvedRole, wanted: Speculative) -> tuple[Edit, ...]:
    """MTP costs prefill one layer, so it is added there; another draft goes from decode."""
    if wanted.method != "MTP" or prefill.speculative is not None:
        return (Remove("spec.decode.speculative"),)
    value: dict[str, Any] = {"method": "MTP", "tokens": 1}
    return (Set("spec.prefill.speculative", value),)


@rule(
    "SPEC011",
    severity="warning",
    evidence="guide",
    source="launch facts 3: P/D guide of 0.30: num_speculative_tokens is 1 on prefill and 1 or more on decode",
    message="Prefill makes {value} draft tokens; one is enough there, more only costs time. Decode keeps its own "
    "number.",
    fix="",
)
def prefill_drafts_more_than_one(resolved: Resolved, _: World) -> Iterator[Fact]:
    """More than one draft token on prefill."""
    prefill = resolved.role("prefill")
    if prefill is not None and resolved.is_disaggregated and prefill.speculative is not None:
        tokens, path = prefill.speculative.tokens, "spec.prefill.speculative.tokens"
        if prefill.speculative.method == "MTP" and tokens > 1:
            yield Fact(path, tokens, (Set(path, 1),))


def not_with_pipeline(resolved: Resolved) -> Iterator[tuple[ResolvedRole, str]]:
    """Roles with PP whose draft method the PP guide does not list for the model."""
    has_moe_dsa = (
        resolved.model is not None and resolved.model.attention == "SFA" and resolved.model.name.startswith("GLM-5")
    )
    refused = ("Eagle3", "DFlash") if has_moe_dsa else ("Eagle3", "DFlash", "DSpark")
    for role, path in drafting(resolved.roles, *refused):
        if role.pipeline > 1:
            yield role, path


@rule(
    "SPEC012",
    severity="error",
    evidence="guide",
    until="0.30.0rc2",
    source=PP_MATRIX,
    message="{value} with pipeline parallelism does not run this model on vLLM Ascend {release}; MTP does.",
    fix="or set pipeline to 1, or engine.version to {first}, which nobody has validated for this",
)
def draft_not_with_pipeline(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A draft method that PP does not carry."""
    for role, path in not_with_pipeline(resolved):
        yield Fact(path, role.speculative and role.speculative.method, (Remove(f"{role.path}.speculative"),))


@rule(
    "SPEC013",
    severity="warning",
    evidence="guide",
    since="latest",
    source=PP_MATRIX,
    message="{value} with pipeline parallelism is not listed for this model in the newest PP guide; nobody has "
    "validated it.",
    fix="or set pipeline to 1",
)
def draft_unlisted_with_pipeline(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A draft method with PP that the newest guide does not list."""
    for role, path in not_with_pipeline(resolved):
        yield Fact(path, role.speculative and role.speculative.method, (Remove(f"{role.path}.speculative"),))
