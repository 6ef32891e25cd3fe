"""Events: one for each transition, in the user's words; a repetition counts up what is there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kvpp_operator.controller.emit import Announcer, Transition, transitions
from kvpp_operator.manifest import KIND_OF, Key, Manifest

if TYPE_CHECKING:
    from tests.controller.conftest import Stage


def status(*conditions: tuple[str, str, str], message: str = "", generation: int = 1) -> dict[str, Any]:
    return {
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": message, "observedGeneration": generation}
            for kind, value, reason in conditions
        ]
    }


EVENTS = KIND_OF["events.k8s.io/v1", "Event"]
ACCEPTED, INVALID = ("Accepted", "True", "Accepted"), ("Accepted", "False", "Invalid")
READY, WAITING = ("Ready", "True", "Ready"), ("Ready", "False", "EnginesNotReady")
NOTHING: dict[str, Any] = {}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, bool]]]] = {
    "a first verdict": (NOTHING, status(ACCEPTED), [("Accepted", False)]),
    "a first refusal": (NOTHING, status(INVALID), [("Invalid", True)]),
    "not yet is no news": (NOTHING, status(WAITING), []),
    "unknown is no news": (NOTHING, status(("Applied", "Unknown", "NotApplied")), []),
    "becoming ready": (status(WAITING), status(READY), [("Ready", False)]),
    "no longer ready": (status(READY), status(WAITING), [("EnginesNotReady", False)]),
    "nothing changed": (status(ACCEPTED, READY), status(ACCEPTED, READY), []),
    "another message of the same spec": (status(INVALID, message="a"), status(INVALID, message="b"), []),
    "another spec that is wrong in another way": (
        status(INVALID, message="a"),
        status(INVALID, message="b", generation=2),
        [("Invalid", True)],
    ),
    "another spec that is wrong in the same way": (status(INVALID), status(INVALID, generation=2), []),
    "another spec that is right too": (status(ACCEPTED, message="a"), status(ACCEPTED, message="b", generation=2), []),
    "another reason": (
        status(("Applied", "False", "Retrying")),
        status(("Applied", "False", "ForeignObject")),
        [("ForeignObject", True)],
    ),
    "what follows from the others": (
        NOTHING,
        status(("Reconciling", "True", "Progressing"), ("Stalled", "True", "NeedsChange")),
        [],
    ),
    "several at once": (status(WAITING), status(INVALID, READY), [("Invalid", True), ("Ready", False)]),
}


@pytest.mark.parametrize("case", CASES)
def test_transitions(case: str) -> None:
    before, after, expected = CASES[case]
    assert [(transition.reason, transition.warning) for transition in transitions(before, after)] == expected


def test_the_note_is_the_message() -> None:
    assert transitions(NOTHING, status(INVALID, message="spec.decode: …")) == (
        Transition("Invalid", "spec.decode: …", warning=True),
    )


@pytest.mark.cluster
class TestOnTheServer:
    @pytest.fixture
    def announcer(self) -> Announcer:
        times = iter(datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in range(60))
        return Announcer("operator-0", lambda: next(times))

    async def events(self, stage: Stage, body: Manifest) -> list[Manifest]:
        """Read them where `kubectl describe` does."""
        kind = "events.k8s.io/v1"
        listed = [item async for item in stage.cluster.list(EVENTS, namespace=stage.namespace)]
        assert {item["apiVersion"] for item in listed} <= {kind}
        return [item for item in listed if item["regarding"]["uid"] == body["metadata"]["uid"]]

    async def test_an_event_says_what_about_whom(self, stage: Stage, announcer: Announcer) -> None:
        body = await stage.apply()
        await announcer(stage.cluster, body, status(INVALID, message="spec.decode: 模型"))
        (event,) = await self.events(stage, body)
        assert (event["type"], event["reason"], event["note"]) == ("Warning", "Invalid", "spec.decode: 模型")
        assert (event["reportingController"], event["reportingInstance"]) == (
            "serving.kvpp.io/kvpp-operator",
            "operator-0",
        )
        assert event["eventTime"] == "2026-01-01T12:00:00.000000Z"
        assert event["regarding"]["name"] == "glm"

    async def test_a_repetition_counts_up_also_after_a_restart(self, stage: Stage, announcer: Announcer) -> None:
        body = await stage.apply()
        for _ in range(2):
            await announcer(stage.cluster, body, status(INVALID))
        restarted = Announcer("operator-1", lambda: datetime(2026, 1, 2, tzinfo=UTC))
        await restarted(stage.cluster, body, status(INVALID))
        (event,) = await self.events(stage, body)
        assert event["series"] == {"count": 3, "lastObservedTime": "2026-01-02T00:00:00.000000Z"}

    async def test_a_long_message_is_cut_within_a_character(self, stage: Stage, announcer: Announcer) -> None:
        body = await stage.apply()
        await announcer(stage.cluster, body, status(INVALID, message="模" * 1000))
        (event,) = await self.events(stage, body)
        assert event["note"] == "模" * 341

    async def test_a_refused_event_is_no_ones_trouble(self, stage: Stage, announcer: Announcer) -> None:
        body = await stage.apply()
        elsewhere = {**body, "metadata": {**body["metadata"], "namespace": "absent"}}
        await announcer(stage.cluster, elsewhere, status(INVALID))
        assert await stage.cluster.get(Key("v1", "Namespace", "", "absent")) is None
