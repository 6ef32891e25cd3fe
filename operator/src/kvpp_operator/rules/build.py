"""What this build of the operator can't do yet. Each entry goes when its feature lands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Edit, Fact, Remove, rule
from kvpp_operator.world import World

SOURCE = "this build of the operator: see the changelog for what it supports"


@dataclass(frozen=True)
class Missing:
    """A feature that a spec uses and this build lacks."""

    path: str
    value: Any
    what: str
    fix: tuple[Edit, ...]


def engines_run_right(resolved: Resolved) -> Iterator[Missing]:
    """Features without which the engines run right: said."""
    spec = resolved.spec
    if spec.rollout.model_fields_set - {"strategy"} or spec.rollout.strategy not in ("Auto", "Recreate"):
        yield Missing("spec.rollout", spec.rollout.strategy, "another rollout than Recreate", (Remove("spec.rollout"),))


@rule(
    "BUILD002",
    severity="warning",
    evidence="guide",
    source=SOURCE,
    message="Not supported by this build yet, the engines run without it: {what}.",
    fix="",
)
def not_built_yet_but_not_needed(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A feature that this build lacks and engines don't need."""
    for missing in engines_run_right(resolved):
        yield Fact(missing.path, missing.value, missing.fix, {"what": missing.what})
