"""One test for all rules: each has a passing and a failing case, and what a finding promises holds."""

from __future__ import annotations

import re

import pytest
from rule_cases import BY_ID, FOLDER, Case, cases

from kvpp_operator import versions
from kvpp_operator.rules import RULES, Judgement
from kvpp_operator.rules.base import Finding, Rule
from kvpp_operator.rules.edits import Set, applied

PASSING, FAILING = cases("pass"), cases("fail")


def of(judgement: Judgement, rule: str) -> list[Finding]:
    return [finding for finding in judgement.findings if finding.rule == rule]


def errors(judgement: Judgement) -> set[tuple[str, str]]:
    """What a build lacks does not count: a right spec may need it."""
    found = {(finding.rule, finding.path) for finding in judgement.findings if finding.severity == "error"}
    return {(rule, path) for rule, path in found if not rule.startswith("BUILD")}


@pytest.mark.parametrize("case", PASSING, ids=str)
def test_passes(case: Case) -> None:
    """Otherwise a good spec is refused, or nagged about."""
    assert of(case.judge(), case.rule) == []


@pytest.mark.parametrize("case", FAILING, ids=str)
def test_finds(case: Case) -> None:
    """Otherwise a bad spec reaches the engine."""
    assert sorted(case.finds) == sorted(finding.path for finding in of(case.judge(), case.rule))


@pytest.mark.parametrize("case", FAILING, ids=str)
def test_disabled_rule_is_silent(case: Case) -> None:
    """Mutation check: the finding comes from this rule and no other."""
    assert of(case.judge(without=case.rule), case.rule) == []


@pytest.mark.parametrize("case", FAILING, ids=str)
def test_fix_removes_the_finding(case: Case) -> None:
    """A fix that, done to the letter, leaves the finding or brings another error helps nobody."""
    before = case.judge()
    found = of(before, case.rule)
    assert all(finding.edits and finding.fix for finding in found)
    after = case.judge(applied(case.document, [edit for finding in found for edit in finding.edits]))
    assert of(after, case.rule) == []
    assert errors(after) - errors(before) == set()


@pytest.mark.parametrize("case", FAILING, ids=str)
def test_fixes_lead_to_an_accepted_spec(case: Case) -> None:
    """Fix by fix, each done to the letter, a user arrives somewhere."""
    document = case.document
    for _ in range(8):
        found = [finding for finding in case.judge(document).findings if finding.severity == "error"]
        if not found:
            break
        document = applied(document, found[0].edits)
    assert case.judge(document).accepted


@pytest.mark.parametrize("case", [case for case in FAILING if BY_ID[case.rule].is_gate], ids=str)
def test_gate_opens_with_the_version_it_names(case: Case) -> None:
    """A gate that names the wrong release sends the user to an image that fails as well."""
    first = BY_ID[case.rule].first_version
    later = case.judge(applied(case.document, [Set("spec.engine.version", first)]))
    assert of(later, case.rule) == []
    assert any(first in f"{finding.message} {finding.fix}" for finding in of(case.judge(), case.rule))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_is_complete(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z]+[0-9]{3}", rule.id)
    assert rule.source and rule.title and rule.message.endswith((".", "}."))
    assert {case.rule for case in PASSING} >= {rule.id}
    assert {case.rule for case in FAILING} >= {rule.id}
    assert versions.BY_NAME[rule.since] <= versions.BY_NAME[rule.until]


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.cel], ids=lambda rule: rule.id)
def test_words_of_a_rule_with_cel_are_fixed(rule: Rule) -> None:
    """The API server says the rule's message as it stands: there is nothing to fill in."""
    assert "{" not in rule.message
    assert rule.since == versions.FIRST.name and not rule.is_gate


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(RULES)


def test_no_case_without_a_rule() -> None:
    assert {path.stem for path in (FOLDER / "cases").glob("*.yaml")} - set(BY_ID) == set()
