"""The cases of the rules: `cases/<RULE>.yaml` holds named passing and failing documents as changes of a base."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kvpp_operator.configuration import DEFAULT, Configuration
from kvpp_operator.manifest import key_of
from kvpp_operator.pipeline import plan_one, wished_of
from kvpp_operator.rules import RULES, Judgement, judge
from kvpp_operator.rules.base import Rule
from kvpp_operator.rules.edits import Edit, Remove, Set, applied
from kvpp_operator.world import OFFLINE, World

FOLDER = Path(__file__).resolve().parents[1] / "rules"
BY_ID = {rule.id: rule for rule in RULES}


@dataclass(frozen=True)
class Case:
    rule: str
    name: str
    document: Any
    configuration: Configuration
    world: World
    """After `before`, where the case names one: changes that give the spec which runs."""
    finds: tuple[str, ...]
    """Paths that the rule reports; none for a case that must pass."""
    base: str
    edits: tuple[Edit, ...]
    """What makes the document of the base."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.name}"

    def judge(self, document: Any = None, *, without: str = "") -> Judgement:
        rules: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.id != without)
        return judge(self.document if document is None else document, self.configuration, self.world, rules)


@cache
def bases() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "bases.yaml").read_text())
    return found


@cache
def cases(kind: str) -> tuple[Case, ...]:
    """`kind` is pass or fail."""
    return tuple(case for path in sorted((FOLDER / "cases").glob("*.yaml")) for case in read(path, kind))


def read(path: Path, kind: str) -> Iterator[Case]:
    for name, case in yaml.safe_load(path.read_text())[kind].items():
        # Through a copy: YAML anchors make parts of a base one object.
        base = case.get("base", "unified")
        edits = changes(case)
        configuration = Configuration.model_validate(case["configuration"]) if "configuration" in case else DEFAULT
        ran = applied(copied(base), changes(case["before"])) if "before" in case else None
        world = OFFLINE if ran is None else running(ran, configuration)
        document = applied(copied(base), edits)
        yield Case(path.stem, name, document, configuration, world, tuple(case.get("finds", ())), base, edits)


def copied(base: str) -> Any:
    return copy.deepcopy(unshared(bases()[base]))


def changes(case: dict[str, Any]) -> tuple[Edit, ...]:
    sets = (Set(place, value) for place, value in case.get("set", {}).items())
    return (*map(Remove, case.get("remove", ())), *sets)


def running(document: Any, configuration: Configuration) -> World:
    """The world once an accepted document is applied."""
    wished = wished_of(plan_one(document, configuration))
    assert wished
    return World(owned={key_of(manifest): manifest for manifest in wished})


def unshared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unshared(item) for key, item in value.items()}
    return [unshared(item) for item in value] if isinstance(value, list) else value
