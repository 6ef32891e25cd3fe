"""An example that breaks each rule, as a user would write it: the first failing case of the rule's tests."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files


@cache
def examples() -> dict[str, str]:
    """YAML by rule id. `make generate` writes the file from `tests/rules/cases`."""
    found: dict[str, str] = json.loads((files(__package__) / "examples.json").read_text("utf-8"))
    return found


def example_of(rule: str) -> str | None:
    """The example of a rule, None for an unknown id."""
    return examples().get(rule)
