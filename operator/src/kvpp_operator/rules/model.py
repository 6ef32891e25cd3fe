"""The model: which one, where its weights are, and whether KVPP runs it."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.api.model import SOURCES, Source
from kvpp_operator.catalogue import models
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import shape
from kvpp_operator.rules.base import Cel, Edit, Fact, Remove, Set, rule
from kvpp_operator.world import World

SEED_MODELS = 'seed guide, Supported Models and Usage: "non-hybrid MLA and SFA models"; hybrid models are not supported'
WITHOUT_KVPP = Set("spec.kvpp.enabled", value=False)
"""The same deployment without KVPP: what remains when the model can't be changed."""


@rule(
    "MODEL001",
    severity="error",
    evidence="guide",
    source="contract, model.profile: a name in the catalogue; facts of other models go into model.architecture",
    message="The catalogue knows no model {value}{suggestion}.",
    fix="or leave the profile out and describe the model in spec.model.architecture",
)
def unknown_profile(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A profile that the catalogue does not have."""
    profile = resolved.spec.model.profile
    if profile is None or profile in models.BY_NAME:
        return
    meant = shape.closest(profile, models.BY_NAME, cutoff=0.5)
    fix: tuple[Edit, ...] = (Set("spec.model.profile", meant),)
    if meant is None:
        example = {"attention": "MLA", "layers": 61, "moe": True}
        fix = (Remove("spec.model.profile"), Set("spec.model.architecture", example))
    near = [meant] if meant else list(models.BY_NAME)[:4]
    yield Fact("spec.model.profile", profile, fix, {"suggestion": f"; the closest are {', '.join(near)}"})


def has_one_source(path: str) -> str:
    """CEL: exactly one member of the source at a path below spec."""
    return f"[{', '.join(f'has(self.{path}.{name})' for name in SOURCES)}].exists_one(set, set)"


def draft_guard(role: str) -> str:
    return f"!has(self.{role}) || !has(self.{role}.speculative) || !has(self.{role}.speculative.draftModel) || "


@rule(
    "MODEL002",
    severity="error",
    evidence="guide",
    source="contract, model.source: exactly one of persistentVolumeClaim, hostPath, huggingFace, modelScope, image",
    message="Weights have exactly one source: persistentVolumeClaim, hostPath, huggingFace, modelScope or image.",
    fix="",
    cel=(
        Cel(has_one_source("model.source"), field_path=".model.source"),
        *(
            Cel(draft_guard(role) + has_one_source(f"{role}.speculative.draftModel"), f".{role}.speculative.draftModel")
            for role in ("unified", "prefill", "decode")
        ),
    ),
)
def not_exactly_one_source(resolved: Resolved, _: World) -> Iterator[Fact]:
    """No source of the weights, or several."""
    for path, source in sources(resolved):
        chosen = source.chosen()
        if len(chosen) != 1:
            surplus: tuple[Edit, ...] = tuple(Remove(f"{path}.{name}") for name in chosen[1:])
            yield Fact(path, chosen, surplus or (Set(f"{path}.persistentVolumeClaim", {"claimName": "weights"}),))


def sources(resolved: Resolved) -> Iterator[tuple[str, Source]]:
    yield "spec.model.source", resolved.spec.model.source
    for role in resolved.roles:
        if role.speculative is not None and role.speculative.draft_model is not None:
            yield f"{role.path}.speculative.draftModel", role.speculative.draft_model


@rule(
    "MODEL003",
    severity="error",
    evidence="guide",
    source="contract, model: exactly one of profile, architecture",
    message="A model is named by exactly one of profile and architecture.",
    fix="",
    cel=(Cel("has(self.model.profile) != has(self.model.architecture)", field_path=".model"),),
)
def profile_and_architecture(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Both profile and architecture, or neither."""
    model = resolved.spec.model
    if model.profile is not None and model.architecture is not None:
        yield Fact("spec.model", ["profile", "architecture"], (Remove("spec.model.architecture"),))
    if model.profile is None and model.architecture is None:
        yield Fact("spec.model", None, (Set("spec.model.profile", "GLM-5.2"),), {})


@rule(
    "MODEL004",
    severity="error",
    evidence="check",
    validation="ci",
    source=f"{SEED_MODELS}; launch facts 1.2 rule 1",
    message="KVPP needs MLA or SFA attention in every layer; GQA, MQA and hybrid models are not supported.",
    fix="or serve an MLA or SFA model",
    cel=(
        Cel(
            "!self.kvpp.enabled || !has(self.model.architecture) || self.model.architecture.attention in ['MLA', "
            "'SFA']",
            field_path=".model.architecture.attention",
        ),
    ),
)
def attention_without_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An architecture whose attention KVPP does not support."""
    given = resolved.spec.model.architecture
    if resolved.spec.kvpp.enabled and given is not None and given.attention not in ("MLA", "SFA"):
        yield Fact("spec.model.architecture.attention", given.attention, (WITHOUT_KVPP,))


@rule(
    "MODEL005",
    severity="error",
    evidence="guide",
    validation="ci",
    source=f"{SEED_MODELS}; launch facts 1.2 rules 1 and 3, 1.5",
    message="KVPP can't run {value}: {reason}. It needs a model with MLA or SFA attention in every layer.",
    fix="or serve an MLA or SFA model",
)
def profile_without_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A known model that KVPP can't run."""
    model = resolved.model
    given = resolved.spec.model
    if resolved.spec.kvpp.enabled and given.architecture is None and model is not None and not model.runs_kvpp:
        yield Fact(
            "spec.model.profile",
            given.profile,
            (WITHOUT_KVPP,),
            {"reason": model.refusal or f"it uses {model.attention}"},
        )


@rule(
    "MODEL006",
    severity="warning",
    evidence="guide",
    source="launch facts 8.1 and 8.2: the estimate of KV capacity adds up the caches of each layer",
    message="The architecture names {value} indexer layers of {layers} layers; the estimate of KV capacity is off.",
    fix="",
)
def more_indexers_than_layers(resolved: Resolved, _: World) -> Iterator[Fact]:
    """More layers with an indexer than layers."""
    given = resolved.spec.model.architecture
    if given is not None and given.indexer_layers is not None and given.indexer_layers > given.layers:
        path = "spec.model.architecture.indexerLayers"
        yield Fact(path, given.indexer_layers, (Set(path, given.layers),), {"layers": given.layers})
