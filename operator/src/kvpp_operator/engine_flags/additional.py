"""`--additional-config`: a closed set of keys, and a typo in one stops the engine (launch facts 1.1)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvpp_operator.engine_flags import types
from kvpp_operator.engine_flags.catalogue import FlagCatalogue
from kvpp_operator.engine_flags.problems import Problem, closest


@dataclass(frozen=True)
class AdditionalProblem:
    """A key that the engine refuses, or (`problem.kind` "unexpected-value") takes without effect."""

    path: tuple[str, ...]
    value: Any
    problem: Problem

    @property
    def stops_the_engine(self) -> bool:
        return self.problem.kind != "unexpected-value"


def check_additional(config: Mapping[str, Any], catalogue: FlagCatalogue) -> Iterator[AdditionalProblem]:
    """Everything in an additional configuration that this release refuses or ignores."""
    for one in types.misfits(dict(config), {"fields": catalogue.additional_keys}):
        yield AdditionalProblem(one.path, one.value, _problem(one, catalogue))
    for key in config:
        if key in catalogue.ignored_additional_keys:
            problem = Problem("unexpected-value", f"{key!r} has no effect: the engine computes it")
            yield AdditionalProblem((key,), config[key], problem)


def _problem(one: types.Misfit, catalogue: FlagCatalogue) -> Problem:
    place = ".".join(one.path)
    if one.known:
        offered = [key for key in one.known if not key.startswith("_") and key not in catalogue.ignored_additional_keys]
        return Problem(
            "unknown-key", f"no key {place!r} in this engine version", closest=closest(one.path[-1], offered)
        )
    return Problem("wrong-type", f"{place} takes {one.expected}, not {json.dumps(one.value)}", one.expected)
