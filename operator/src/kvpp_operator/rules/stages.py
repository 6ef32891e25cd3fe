"""Pipeline stages: where PP runs, and how layers are split over stages."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Cel, Fact, Remove, Set, rule
from kvpp_operator.rules.parallelism import ALL_ROLES
from kvpp_operator.world import World


@rule(
    "PAR006",
    severity="error",
    evidence="guide",
    source="launch facts 1.2 rule 17 and 6.2: P/D runs PP on prefill only (pipeline_parallel.md of 0.30)",
    message="Decode runs without pipeline parallelism; PP in a P/D deployment is for prefill only.",
    fix="",
    cel=(Cel("!has(self.decode) || self.decode.parallelism.pipeline == 1", field_path=".decode.parallelism.pipeline"),),
)
def pipeline_on_decode(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PP on decode."""
    decode = resolved.role("decode")
    if decode is not None and decode.pipeline != 1:
        path = "spec.decode.parallelism.pipeline"
        yield Fact(path, decode.pipeline, (Set(path, 1),))


@rule(
    "PAR007",
    severity="error",
    evidence="guide",
    source="launch facts 6.2: VLLM_PP_LAYER_PARTITION has one number for each PP rank",
    message="pipelineLayers names the layers of every pipeline stage: as many numbers as pipeline says.",
    fix="",
    cel=tuple(
        Cel(
            f"!has(self.{role}) || !has(self.{role}.parallelism.pipelineLayers) || "
            f"size(self.{role}.parallelism.pipelineLayers) == self.{role}.parallelism.pipeline",
            field_path=f".{role}.parallelism.pipelineLayers",
        )
        for role in ALL_ROLES
    ),
)
def layers_for_other_stages(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A layer split with another number of stages."""
    for role in resolved.roles:
        layers = role.role.parallelism.pipeline_layers
        if layers is not None and len(layers) != role.pipeline:
            path = f"{role.path}.parallelism.pipelineLayers"
            yield Fact(path, layers, (Remove(path),))


@rule(
    "PAR008",
    severity="error",
    evidence="guide",
    source="launch facts 6.2: the numbers add up to the hidden layers, draft layers not counted",
    message="pipelineLayers adds up to {total}, but {model} has {layers} layers; draft layers are not counted.",
    fix="",
)
def layers_do_not_add_up(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A layer split that does not cover the model."""
    if resolved.model is None:
        return
    wanted = resolved.model.layers
    for role in resolved.roles:
        layers = role.role.parallelism.pipeline_layers
        if layers is not None and len(layers) == role.pipeline and sum(layers) != wanted:
            path = f"{role.path}.parallelism.pipelineLayers"
            words = {"total": sum(layers), "layers": wanted, "model": resolved.model.name}
            yield Fact(path, layers, (Remove(path),), words)


@rule(
    "PAR009",
    severity="error",
    evidence="guide",
    source="launch facts 6.2: every stage has at least one layer",
    message="{value} pipeline stages are more than the {layers} layers of {model}; every stage needs a layer.",
    fix="",
)
def more_stages_than_layers(resolved: Resolved, _: World) -> Iterator[Fact]:
    """More pipeline stages than layers."""
    if resolved.model is None:
        return
    for role in resolved.roles:
        if role.pipeline > resolved.model.layers and role.role.parallelism.pipeline_layers is None:
            path = f"{role.path}.parallelism.pipeline"
            yield Fact(
                path, role.pipeline, (Set(path, 1),), {"layers": resolved.model.layers, "model": resolved.model.name}
            )


@rule(
    "PAR010",
    severity="warning",
    evidence="guide",
    validation="seed",
    source="seed guide, Supported Features, PP: see the PP guide for the current output-mismatch caveat; "
    "launch facts 6.2",
    message="KVPP with pipeline parallelism has an open issue: now and then an output mismatch in the end-to-end test.",
    fix="or compare outputs with KVPP on and off before relying on them",
)
def pipeline_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PP with KVPP: the seed guide's caveat."""
    for role in resolved.kvpp_roles:
        if role.pipeline > 1:
            path = f"{role.path}.parallelism.pipeline"
            yield Fact(path, role.pipeline, (Set("spec.kvpp.enabled", value=False),))
