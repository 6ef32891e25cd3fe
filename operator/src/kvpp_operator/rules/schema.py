"""Parse: a document → the model, or findings for all mistakes at once.

What is wrong is reported, taken out of a copy, and the rest is parsed again; so one bad field hides no other mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pydantic import ValidationError

from kvpp_operator.api.v1alpha1 import ROLES, KVPPDeployment
from kvpp_operator.rules import paths, shape
from kvpp_operator.rules.base import Fact, Finding, Remove, Rule, sort_key
from kvpp_operator.rules.document import Cleaning
from kvpp_operator.rules.edits import put, take
from kvpp_operator.rules.mistakes import mistake, non_json
from kvpp_operator.rules.schema_rules import DUPLICATE, SCHEMA

Parts = tuple[str | int, ...]

MOST_FINDINGS = 256
"""A document with more mistakes is not a KVPPDeployment that someone mistyped."""

SLIP = 0.8

STAND_INS: dict[Parts, tuple[Any, ...]] = {
    ("spec", "accelerator"): ({"chip": "A2"}, {"chip": "A3"}, {"chip": "950DT"}),
    ("spec", "accelerator", "chip"): ("A2", "A3", "950DT"),
    ("spec", "engine"): ({"version": "latest"}, {"version": "0.30.0rc2"}),
    ("spec", "engine", "version"): ("latest", "0.30.0rc2"),
    ("spec", "model", "source"): (shape.SOURCE,),
    ("metadata",): ({"name": "unnamed"},),
    ("metadata", "name"): ("unnamed",),
    ("apiVersion",): (shape.EXAMPLES["apiVersion"],),
    ("kind",): (shape.EXAMPLES["kind"],),
}
"""What to assume where a required field is bad, so that the rest can be judged: a finding counts when it is there
whichever of them stands in."""


@dataclass
class Parsed:
    """What parsing made of a document."""

    deployment: KVPPDeployment | None = None
    """None when anything was wrong."""
    findings: tuple[Finding, ...] = ()
    partial: tuple[KVPPDeployment, ...] = ()
    """Where something was wrong: what is left, once for each way of filling what is missing."""
    removed: tuple[Parts, ...] = ()
    """Places that were wrong or missing."""


def parse(document: Any, rules: Sequence[Rule] = SCHEMA) -> tuple[KVPPDeployment | None, tuple[Finding, ...]]:
    """The model of a document, or every finding of its form; never raises, whatever the document is."""
    parsed = parse_all(document, rules)
    return parsed.deployment, parsed.findings


def parse_all(document: Any, rules: Sequence[Rule] = SCHEMA) -> Parsed:
    """`parse`, and what can still be judged of a document that has mistakes."""
    work = Work(frozenset(rule.id for rule in rules))
    tree = work.take_non_json(document)
    if not isinstance(tree, dict):
        work.report(*mistake("type", (), tree, {"expected": "a map"}))
        return Parsed(findings=work.sorted())
    work.take_slips(tree.get("metadata"))
    deployment = work.parse(tree)
    if deployment is not None:
        work.facts.extend((DUPLICATE, fact) for fact in duplicates(deployment))
    elif work.is_repairable:
        return Parsed(None, work.sorted(), work.partials(tree), tuple(work.removed))
    sound = deployment is not None and not work.facts
    partial = (deployment,) if deployment is not None and not sound else ()
    return Parsed(deployment if sound else None, work.sorted(), partial, tuple(work.removed))


@dataclass
class Work:
    """The state of one parse: what was found and what was taken out."""

    asked: frozenset[str]
    facts: list[tuple[Rule, Fact]] = field(default_factory=list)
    removed: list[Parts] = field(default_factory=list)
    missing: list[Parts] = field(default_factory=list)

    def report(self, rule: Rule, fact: Fact) -> None:
        self.facts.append((rule, fact))

    def sorted(self) -> tuple[Finding, ...]:
        findings = [rule.finding(fact) for rule, fact in self.facts if rule.id in self.asked]
        return tuple(sorted(findings[:MOST_FINDINGS], key=sort_key))

    def take_non_json(self, document: Any) -> Any:
        cleaning = Cleaning()
        tree = cleaning.clean(document, ())
        for place, value, reason in cleaning.refused[:MOST_FINDINGS]:
            self.report(*non_json(place, value, reason))
            self.removed.append(place)
        return tree

    def take_slips(self, metadata: Any) -> None:
        """Fields of metadata that are known ones misspelt. Others are no mistake: the server of tomorrow may write them."""
        known = shape.names_at(("metadata",))
        for name, value in metadata.items() if isinstance(metadata, dict) else ():
            if name not in known and shape.closest(name, known, cutoff=SLIP):
                self.report(*mistake("extra_forbidden", ("metadata", name), value, {"siblings": tuple(metadata)}))

    def parse(self, tree: dict[str, Any]) -> KVPPDeployment | None:
        """Take out what is wrong until the rest parses; None when something required is gone or missing."""
        while True:
            try:
                return KVPPDeployment.model_validate(tree)
            except ValidationError as error:
                if not self.take_out(tree, by_place(tree, error)):
                    return None

    def take_out(self, tree: dict[str, Any], errors: Mapping[Parts, list[Any]]) -> bool:
        """Report and remove each place; whether another try makes sense."""
        changed = False
        for place in sorted(errors, key=lambda parts: paths.order(paths.join(parts)), reverse=True):
            found = errors[place]
            if found[0]["type"] == "missing":
                changed |= self.lacks(tree, place)
                continue
            # An API server drops null where it may not stand; null is also what the walk left of a value it refused.
            if place not in self.removed and (found[0]["input"] is not None or isinstance(place[-1], int)):
                self.report(*mistake(found[0]["type"], place, found[0]["input"], context(tree, place, found)))
                self.removed.append(place)
            discard(tree, place)
            changed = True
        return changed and len(self.facts) < MOST_FINDINGS

    def lacks(self, tree: dict[str, Any], place: Parts) -> bool:
        """A required field is missing: leave out the optional thing that needs it, if there is one."""
        if place not in self.missing:
            self.missing.append(place)
            if not any(place[: len(gone)] == gone for gone in self.removed):
                self.report(*mistake("missing", place, None, {}))
                self.removed.append(place)
        for depth in range(len(place) - 1, 1, -1):
            if not shape.is_required(place[:depth]):
                discard(tree, place[:depth])
                self.removed.append(place[:depth])
                return True
        return False

    @property
    def is_repairable(self) -> bool:
        return bool(self.missing) and all(place in STAND_INS or len(place) > 2 for place in self.missing)  # noqa: PLR2004

    def partials(self, tree: dict[str, Any]) -> tuple[KVPPDeployment, ...]:
        places = [place for place in self.missing if place in STAND_INS and not holds(tree, place)]
        made = []
        for values in product(*(STAND_INS[place] for place in places)):
            for place, value in zip(places, values, strict=True):
                put(tree, place, value)
            try:
                made.append(KVPPDeployment.model_validate(tree))
            except ValidationError:
                return ()
        return tuple(made)


def discard(tree: Any, place: Parts) -> None:
    """Take a place away; it may have gone with what held it."""
    if holds(tree, place):
        take(tree, place)


def holds(tree: Any, place: Parts) -> bool:
    """Whether something stands at a place, null included."""
    node = tree
    for part in place:
        if isinstance(node, dict):
            if part not in node:
                return False
        elif not isinstance(node, list) or not isinstance(part, int) or part >= len(node):
            return False
        node = node[part]
    return True


def by_place(tree: dict[str, Any], error: ValidationError) -> dict[Parts, list[Any]]:
    """Errors by the user's path: tags of unions are no part of it. A place within another bad place is dropped."""
    found: dict[Parts, list[Any]] = {}
    for one in error.errors(include_url=False):
        found.setdefault(located(tree, one["loc"], is_missing=one["type"] == "missing"), []).append(one)
    return {
        place: errors
        for place, errors in found.items()
        if not any(place[:cut] in found for cut in range(1, len(place)))
    }


def located(tree: Any, loc: tuple[str | int, ...], *, is_missing: bool) -> Parts:
    parts: list[str | int] = []
    node = tree
    for number, part in enumerate(loc):
        if isinstance(node, dict) and part in node:
            node = node[str(part)]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif not (is_missing and number == len(loc) - 1):
            continue  # the tag of a union's member, or `[key]`
        parts.append(part)
    return tuple(parts)


def context(tree: Any, place: Parts, errors: list[Any]) -> dict[str, Any]:
    """What is known of a place beyond the value: every error there, and what stands beside it."""
    types = [error["type"] for error in errors]
    beside = paths.lookup(tree, paths.join(place[:-1]))
    return {
        "types": types,
        "document": tree,
        "siblings": tuple(beside) if isinstance(beside, dict) else (),
        **(errors[-1].get("ctx") or {}),
    }


def duplicates(deployment: KVPPDeployment) -> Iterator[Fact]:
    """Entries of lists that the CRD keys by name (the API server refuses a name given twice)."""
    spec = deployment.spec
    lists: dict[str, Sequence[Any]] = {
        "spec.engine.env": spec.engine.env,
        "spec.imagePullSecrets": spec.image_pull_secrets,
    }
    lists |= {f"spec.{name}.env": role.env for name, role in spec.roles().items() if name in ROLES}
    for path, entries in lists.items():
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            if entry.name in seen:
                place = f"{path}[{index}]"
                yield Fact(f"{place}.name", entry.name, (Remove(place),), {"name": entry.name, "list": path})
            seen.add(entry.name)
