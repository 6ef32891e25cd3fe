"""Whether KVPP pays: the prediction of KV capacity."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.capacity import estimate, stage_layers
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Fact, Set, rule
from kvpp_operator.world import World

LEAST_GAIN = 1.2
"""Below it the two scratch buffers eat what the split saves (launch facts 8.4)."""

OFF = Set("spec.kvpp.enabled", value=False)


@rule(
    "GAIN001",
    severity="warning",
    evidence="guide",
    source="launch facts 8.1 and 8.4: capacity = layers / (owned layers + 2 scratch buffers); warn below 1.2",
    message="KVPP will hardly gain KV capacity here: the predicted multiplier is {multiplier}, because each rank "
    "keeps two "
    "scratch buffers beside its own layers.",
    fix="or spread a model of more layers over fewer ranks",
)
def gain_too_small(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A predicted capacity multiplier below 1.2."""
    for role in resolved.kvpp_roles:
        predicted = estimate(resolved, role)
        if predicted is not None and role.role.parallelism.kvpp_group > 1 and predicted.multiplier < LEAST_GAIN:
            path = f"{role.path}.parallelism.tensor"
            yield Fact(path, role.tensor, (OFF,), {"multiplier": f"{predicted.multiplier:.2f}"})


@rule(
    "GAIN002",
    severity="warning",
    evidence="guide",
    source="launch facts 8.1: the ranks of a KVPP group own whole layers of their stage",
    message="{group} TP x PCP ranks share the {layers} layers of a pipeline stage: some ranks own none and keep only "
    "scratch "
    "buffers.",
    fix="or use fewer ranks for each stage",
)
def more_ranks_than_layers(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A KVPP group with more ranks than its stage has layers."""
    if resolved.model is None:
        return
    for role in resolved.kvpp_roles:
        stages = stage_layers(resolved.model.layers, role.pipeline, role.role.parallelism.pipeline_layers)
        group = role.role.parallelism.kvpp_group
        if stages is not None and group > min(stages):
            yield Fact(f"{role.path}.parallelism.tensor", role.tensor, (OFF,), {"group": group, "layers": min(stages)})
