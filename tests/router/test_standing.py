"""Why the router does not serve, first cause first; and what it tells others."""

from __future__ import annotations

import json

import pytest

from kvpp_operator.router.canary import Verdict
from kvpp_operator.router.handover import judge
from kvpp_operator.router.members import Member
from kvpp_operator.router.standing import Reason, Report, Standing, standing
from kvpp_operator.router.steps import Held
from kvpp_operator.router.trial import Trial

P, D = Member("prefill", "10.0.0.1:8000"), Member("decode", "10.0.1.1:8000")
BOTH = frozenset({P, D})
GOOD, BAD = Verdict(passed=True, handover="seen"), Verdict(passed=False, message="other text")


@pytest.mark.parametrize(
    ("revision", "wanted", "held", "verdict", "reason"),
    [
        ("", BOTH, Held(BOTH), GOOD, Reason.NO_REVISION),
        ("a", frozenset({P}), Held(BOTH), GOOD, Reason.NO_MEMBERS),
        ("a", BOTH, None, GOOD, Reason.PROXY_DOWN),
        ("a", BOTH, Held(frozenset({P})), GOOD, Reason.PROXY_OUT_OF_STEP),
        ("a", BOTH, Held(BOTH, frozenset({P})), GOOD, Reason.PROXY_OUT_OF_STEP),
        ("a", BOTH, Held(BOTH), None, Reason.CANARY_RUNS),
        ("a", BOTH, Held(BOTH), BAD, Reason.CANARY_FAILED),
        ("a", BOTH, Held(BOTH), GOOD, Reason.SERVING),
    ],
)
def test_standing(
    revision: str, wanted: frozenset[Member], held: Held | None, verdict: Verdict | None, reason: Reason
) -> None:
    assert standing(revision, wanted, held, verdict).reason is reason


def test_report() -> None:
    report = Report(Standing(Reason.CANARY_FAILED, "other text"), "a", BOTH, "not seen")
    assert json.loads(report.text()) == {
        "ready": False,
        "reason": "CanaryFailed",
        "message": "other text",
        "revision": "a",
        "members": {"prefill": ["10.0.0.1:8000"], "decode": ["10.0.1.1:8000"]},
        "handover": "not seen",
    }


def test_a_failed_trial_is_repeated_ever_more_rarely() -> None:
    trial = Trial()
    assert trial.is_due(0)
    waits = []
    for _ in range(7):
        trial.record(BAD, 100)
        waits.append(trial.again_at - 100)
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    assert not trial.is_due(101)
    assert trial.is_due(160)
    trial.record(GOOD, 200)
    assert not trial.is_due(10**9)


@pytest.mark.parametrize(
    ("before", "after", "requests", "verdict"),
    [
        ({"d": 1.0}, {"d": 2.0}, 1, "seen"),
        ({"d": 1.0}, {"d": 1.0}, 1, "unknown"),
        ({"d": 1.0}, {"d": 1.0}, 50, "not seen"),
        ({"d": 9.0}, {"d": 0.0}, 50, "unknown"),  # restarted
        ({}, {"d": 7.0}, 50, "unknown"),
        ({"d": 1.0, "e": 1.0}, {"d": 1.0, "e": 3.0}, 50, "seen"),
    ],
)
def test_hand_over_over_time(before: dict[str, float], after: dict[str, float], requests: int, verdict: str) -> None:
    assert judge(before, after, requests) == verdict
