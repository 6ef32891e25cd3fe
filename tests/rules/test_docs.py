"""Generated pages name what exists, and leave no line of the guide empty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvpp_operator.docs.cases import cases, examples_json
from kvpp_operator.docs.coverage import SECTIONS, gaps
from kvpp_operator.docs.rules import flags_page, rules_page
from kvpp_operator.ownership import OWNED
from kvpp_operator.rules import RULES
from kvpp_operator.rules.examples import example_of

ROOT = Path(__file__).resolve().parents[2]


def test_coverage_has_no_gap() -> None:
    assert list(gaps()) == []


def test_named_files_exist() -> None:
    named = {name for rows in SECTIONS.values() for line in rows for name in (*line.examples, *line.tests)}
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_an_example(rule: object) -> None:
    """`kvpp explain` shows it."""
    assert example_of(getattr(rule, "id"))  # noqa: B009


def test_examples_are_fresh() -> None:
    """`make generate` writes them; the shipped file must not lag behind the cases."""
    shipped = ROOT / "operator/src/kvpp_operator/rules/examples.json"
    assert json.loads(shipped.read_text("utf-8")) == json.loads(examples_json())


def test_pages_name_every_rule_and_every_owned_name() -> None:
    rules, flags = rules_page(), flags_page()
    assert {rule.id for rule in RULES if f"### {rule.id}\n" not in rules} == set()
    names = {name for owned in OWNED for name in (*owned.flags, *owned.env, *owned.keys)}
    assert {name for name in names if f"`{name}`" not in flags} == set()


def test_no_name_has_two_owners() -> None:
    for kind in ("flags", "keys", "json_keys"):
        names = [name for owned in OWNED for name in getattr(owned, kind)]
        assert len(names) == len(set(names))


def test_cases_are_read() -> None:
    assert set(cases()) == {rule.id for rule in RULES}
