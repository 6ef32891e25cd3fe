"""`kvpp rules` and `kvpp explain`: the rules as people read them."""

from __future__ import annotations

import difflib
import json

from kvpp_operator.rules import RULES
from kvpp_operator.rules.base import Rule
from kvpp_operator.rules.schema_rules import UNREADABLE

VALIDATIONS = {
    "never": "never validated on hardware",
    "ci": "covered by the engine's own CI",
    "seed": "measured by the seed guide",
}
EVIDENCE = {
    "parser": "the engine's argument parser refuses it",
    "check": "the engine's start-up code refuses it",
    "guide": "only a guide says so",
}


def find(rule_id: str) -> Rule | None:
    return next((rule for rule in (UNREADABLE, *RULES) if rule.id.lower() == rule_id.strip().lower()), None)


def closest(rule_id: str) -> list[str]:
    return difflib.get_close_matches(rule_id.upper(), [rule.id for rule in RULES], n=3)


def versions(rule: Rule) -> str:
    if rule.is_gate:
        return f"{rule.since} to {rule.until}; accepted from {rule.first_version} on"
    return "every version" if rule.since == "0.28.0rc1" else f"from {rule.since} on"


def as_text(rule: Rule, example: str | None) -> str:
    lines = [
        f"{rule.id}  {rule.severity}: {rule.title}",
        "",
        f"  {rule.message}",
        "",
        f"  versions    {versions(rule)}",
        f"  evidence    {rule.evidence}: {EVIDENCE[rule.evidence]}",
        f"  validation  {rule.validation}: {VALIDATIONS[rule.validation]}",
        f"  source      {rule.source}",
    ]
    if "launch facts" in rule.source:
        lines.append("              launch facts are numbered in docs/launch-facts.md")
    if rule.fix:
        lines.append(f"  fix         {rule.fix.replace('{first}', rule.first_version)}")
    if example:
        lines += ["", "An example that breaks it:", "", *(f"  {line}" for line in example.splitlines())]
    return "\n".join(lines) + "\n"


def as_json(rule: Rule, example: str | None) -> str:
    return json.dumps(to_json(rule) | ({"example": example} if example else {}), ensure_ascii=False) + "\n"


def to_json(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id, "severity": rule.severity, "title": rule.title, "message": rule.message, "fix": rule.fix,
        "source": rule.source, "evidence": rule.evidence, "validation": rule.validation, "since": rule.since,
        "until": None if rule.until == "latest" else rule.until, "apiServer": bool(rule.cel),
    }  # fmt: skip


def listing() -> str:
    width = max(len(rule.id) for rule in RULES)
    return "".join(f"{rule.id:<{width}}  {rule.severity:<7}  {versions(rule):<44}  {rule.title}\n" for rule in RULES)
