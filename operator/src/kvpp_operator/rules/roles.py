"""Which roles a deployment has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.api.v1alpha1 import Spec
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Cel, Edit, Fact, Remove, Set, rule
from kvpp_operator.world import World


@rule(
    "ROLE001",
    severity="error",
    evidence="guide",
    source="contract, spec: unified xor (prefill and decode); seed guide, PD Disaggregation: a producer needs a "
    "consumer",
    message="A deployment has either unified, or both prefill and decode.",
    fix="",
    cel=(
        Cel(
            "has(self.unified) ? !has(self.prefill) && !has(self.decode) : has(self.prefill) && has(self.decode)",
            field_path="",
        ),
    ),
)
def roles_do_not_fit_together(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Neither unified alone nor prefill with decode."""
    present = tuple(role.name for role in resolved.roles)
    if present not in (("unified",), ("prefill", "decode")):
        yield Fact("spec", list(present), way_out(resolved.spec))


def way_out(spec: Spec) -> tuple[Edit, ...]:
    if spec.unified is not None:
        extra = [name for name, role in (("prefill", spec.prefill), ("decode", spec.decode)) if role is not None]
        return tuple(Remove(f"spec.{name}") for name in extra)
    if spec.prefill is not None:
        return (Set("spec.decode", partner(spec.prefill.parallelism.tensor, expert=spec.prefill.parallelism.expert)),)
    if spec.decode is not None:
        return (
            Set("spec.prefill", partner(max(2, spec.decode.parallelism.tensor), expert=spec.decode.parallelism.expert)),
        )
    return (Set("spec.unified", partner(8, expert=False)),)


def partner(tensor: int, *, expert: bool) -> dict[str, Any]:
    """The smallest role that goes with what is there."""
    return {"parallelism": {"tensor": tensor, **({"expert": True} if expert else {})}}
