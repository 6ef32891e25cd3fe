"""What a rule is: one validation fact with its source, and how it is asked.

A rule yields places and facts; it never raises, words anything, does I/O or knows another rule. Its words stand once, in
the decorator, and come out the same in admission, the CLI, status, events and the docs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from kvpp_operator import versions
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths
from kvpp_operator.rules.edits import Edit, Remove, Set, plain
from kvpp_operator.world import World

__all__ = ("Cel", "Check", "Edit", "Fact", "Finding", "Remove", "Rule", "Set", "plain", "rule", "sort_key")

Severity = Literal["error", "warning"]
Evidence = Literal["parser", "check", "guide"]
"""Who refuses, as far as running it can show: the engine's argument parser, or its start-up code. `guide` is everything
else: guides, code that was read but needs an NPU to run, and our own contract."""
Validation = Literal["never", "ci", "seed"]
"""How far the matter is validated on hardware: never, by the engine's own CI, by the seed guide's measurements."""


@dataclass(frozen=True)
class Fact:
    """Where a rule found something, what stands there, and the smallest edit that removes it."""

    path: str
    value: Any = None
    fix: tuple[Edit, ...] = ()
    words: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """A rule's verdict on a spec."""

    rule: str
    severity: Severity
    path: str
    value: Any
    message: str
    source: str
    fix: str
    validation: Validation
    edits: tuple[Edit, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule, "severity": self.severity, "path": self.path, "value": self.value, "message": self.message,
            "source": self.source, "fix": self.fix, "validation": self.validation,
        }  # fmt: skip

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.message} Fix: {self.fix}. [{self.rule}]"


@dataclass(frozen=True)
class Cel:
    """The same verdict as the API server can give it: true means fine. `self` is the spec."""

    expression: str
    field_path: str
    """Below spec, as the CRD's fieldPath wants it: `.prefill.graphMode`."""


Check = Callable[[Resolved, World], Iterator[Fact]]


@dataclass(frozen=True)
class Rule:
    id: str
    severity: Severity
    evidence: Evidence
    source: str
    message: str
    fix: str
    """Words for the fix; the edits of a fact are named where there are some."""
    check: Check
    title: str
    validation: Validation = "never"
    since: str = versions.FIRST.name
    until: str = versions.LATEST.name
    """The last release that this rule holds for; with `since` the span of releases that refuse."""
    cel: tuple[Cel, ...] = ()

    @cached_property
    def releases(self) -> frozenset[str]:
        """Names of the releases that this rule holds for."""
        first, last = versions.BY_NAME[self.since], versions.BY_NAME[self.until]
        return frozenset(release.name for release in versions.RELEASES if first <= release <= last)

    def holds_for(self, release: versions.Release) -> bool:
        return release.name in self.releases

    @property
    def is_gate(self) -> bool:
        """A version gate: later releases accept what this rule refuses."""
        return self.until != versions.LATEST.name

    @property
    def first_version(self) -> str:
        """The first release that accepts."""
        return versions.RELEASES[versions.BY_NAME[self.until].age + 1].name if self.is_gate else ""

    def findings(self, resolved: Resolved, world: World) -> Iterator[Finding]:
        if self.holds_for(resolved.release):
            for fact in self.check(resolved, world):
                yield self.finding(fact, release=resolved.release.name)

    def finding(self, fact: Fact, *, release: str = "") -> Finding:
        value = shortened(fact.value)
        words = {"release": release, "first": self.first_version, "value": plain(value), **fact.words}
        advice = self.fix.format(**words)
        return Finding(
            rule=self.id,
            severity=self.severity,
            path=fact.path,
            value=value,
            message=self.message.format(**words),
            source=self.source,
            fix="; ".join([*map(str, fact.fix), *([advice] if advice else [])]),
            validation=self.validation,
            edits=fact.fix,
        )


def rule(id: str, **words: Any) -> Callable[[Check], Rule]:  # noqa: A002 - a rule's id is called id everywhere
    """Make the decorated check a rule; its docstring's first line is the title."""

    def build(check: Check) -> Rule:
        title = (check.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        return Rule(id=id, check=check, title=title, **words)

    return build


def sort_key(finding: Finding) -> tuple[Any, ...]:
    """Order of a document's findings: by path (numbers as numbers), errors first, then by rule."""
    return (paths.order(finding.path), finding.severity, finding.rule)


LONGEST_TEXT = 120
LONGEST_LIST = 16
BEYOND = 2**63


def shortened(value: Any, depth: int = 3) -> Any:
    """A value fit for a finding: what is long is cut, what JSON or a terminal can't say is replaced."""
    if isinstance(value, (list, tuple)):
        return [shortened(item, depth - 1) for item in value[:LONGEST_LIST]] if depth else "[…]"
    if isinstance(value, dict):
        kept = list(value.items())[:LONGEST_LIST]
        return {str(shortened(key)): shortened(item, depth - 1) for key, item in kept} if depth else "{…}"
    is_sayable = value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value))
    if is_sayable or (isinstance(value, int) and abs(value) < BEYOND):
        return value
    text = "a number beyond 64 bits" if isinstance(value, int) else str(value).encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
