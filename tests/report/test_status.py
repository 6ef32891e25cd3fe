"""(report, previous status, now) → status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvpp_operator.report import reasons
from kvpp_operator.report.apis import missing
from kvpp_operator.report.engines import EngineState
from kvpp_operator.report.pool import PoolState
from kvpp_operator.report.router import PodReport, RouterState
from kvpp_operator.report.status import Outcome, Report, status
from kvpp_operator.rules.base import Finding

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
PREFILL = EngineState("prefill", 0, "r1", ready=True, reason="Ready", nodes=("n1",), kv_port=22000, kv_port_last=22008)
DECODE = EngineState("decode", 0, "r1", ready=True, reason="Ready", nodes=("n2",), kv_port=22009, kv_port_last=22024)
UP = Report(generation=3, findings=(), wanted={"prefill": 1, "decode": 1}, engines=(PREFILL, DECODE), revision="r1")
SERVING = PodReport("Serving", "", "r1", members=2, handover="seen")
ROUTER = RouterState("demo-router.default.svc:8000", wanted=1, ready=1, reports=(SERVING,))
ERROR = Finding(
    "GRAPH001", "error", "spec.prefill.graphMode", "Full", "No full graphs.", "seed", "set it to Eager", "seed"
)


def verdict(report: Report, previous: dict[str, Any] | None = None) -> dict[str, str]:
    found = status(report, previous or {}, NOW)
    return {condition["type"]: f"{condition['status']}/{condition['reason']}" for condition in found["conditions"]}


@pytest.mark.parametrize(
    ("what", "report", "expected"),
    [
        ("all is well", UP, {"Accepted": "True/Accepted", "Applied": "True/Applied", "Available": "True/Available", "Ready": "True/Ready", "Reconciling": "False/Settled", "Stalled": "False/Healthy"}),
        ("decode loads", replace(UP, engines=(PREFILL, replace(DECODE, ready=False, reason="Loading"))), {"Available": "False/NoEngineReady", "Ready": "False/EnginesNotReady", "Reconciling": "True/Progressing", "Stalled": "False/Healthy"}),
        ("an invalid edit leaves what runs available", replace(UP, findings=(ERROR,)), {"Accepted": "False/Invalid", "PortsAllocated": "Unknown/NotPlanned", "Applied": "Unknown/NotApplied", "Available": "True/Available", "Ready": "False/SpecNotAccepted", "Reconciling": "False/Settled", "Stalled": "True/NeedsChange"}),
        ("a foreign object is in the way", replace(UP, outcome=Outcome("ForeignObject", "Service x/y")), {"Applied": "False/ForeignObject", "Ready": "False/ObjectsNotApplied", "Stalled": "True/NeedsChange"}),
        ("P and D of different revisions do not serve", replace(UP, engines=(PREFILL, replace(DECODE, revision="r0"))), {"Available": "False/NoEngineReady"}),
        ("nothing is wanted", replace(UP, wanted={"prefill": 0, "decode": 0}, engines=()), {"Ready": "True/NoEnginesWanted", "Available": "False/NoEngineReady"}),
        ("suspended", replace(UP, suspended=True), {"Reconciling": "False/Suspended", "Ready": "True/Ready"}),
    ],
)  # fmt: skip
def test_conditions(what: str, report: Report, expected: dict[str, str]) -> None:
    assert {kind: verdict(report)[kind] for kind in expected} == expected, what


def behind(**report: Any) -> Report:
    """A router whose only pod says this; it is ready if it serves."""
    said = replace(SERVING, **report)
    return replace(UP, router=replace(ROUTER, ready=int(said.reason == "Serving"), reports=(said,), obstacle=str(said)))


NOT_HEALTHY = "no healthy decode engine of revision r1"


@pytest.mark.parametrize(
    ("what", "report", "expected"),
    [
        ("in step", behind(), {"Available": "True/Available", "HandoverSeen": "True/HandoverSeen", "Ready": "True/Ready", "Reconciling": "False/Settled"}),
        ("the canary failed", behind(reason="CanaryFailed", message="other text", handover="not seen"), {"Available": "False/CanaryFailed", "HandoverSeen": "False/CanaryFailed", "Ready": "False/RouterNotReady", "Reconciling": "True/Progressing"}),
        ("nobody is healthy", behind(reason="NoMembers", message=NOT_HEALTHY, members=1, handover="unknown"), {"Available": "False/RouterWithoutMembers", "HandoverSeen": "Unknown/HandoverUnknown", "Ready": "False/RouterNotReady"}),
        ("the proxy is away", behind(reason="ProxyDown"), {"Available": "False/RouterNotReady", "HandoverSeen": "True/HandoverSeen", "Ready": "False/RouterNotReady"}),
        ("no KV moves", behind(handover="not seen"), {"Available": "True/Available", "HandoverSeen": "False/HandoverNotSeen", "Ready": "True/Ready"}),
        ("an older revision is served", behind(revision="r0"), {"Available": "True/Available", "Ready": "False/RouterNotReady"}),
        ("an engine is not behind it yet", behind(members=1), {"Available": "True/Available", "Ready": "False/RouterNotReady"}),
        ("nobody has said anything", replace(UP, router=replace(ROUTER, reports=())), {"Available": "True/Available", "HandoverSeen": "Unknown/HandoverUnknown", "Ready": "True/Ready"}),
        ("one of two pods is ready", replace(UP, router=replace(ROUTER, wanted=2)), {"Available": "True/Available", "Ready": "False/RouterNotReady"}),
        ("pods are being replaced", replace(UP, router=replace(ROUTER, is_current=False)), {"Available": "True/Available", "Ready": "False/RouterNotReady"}),
        ("no router pods are wanted", replace(UP, router=replace(ROUTER, wanted=0, ready=0, reports=())), {"Available": "True/Available", "Ready": "True/Ready"}),
        ("no decode is wanted", replace(behind(reason="NoMembers"), wanted={"prefill": 1, "decode": 0}, engines=(PREFILL,)), {"Available": "False/RouterWithoutMembers", "Ready": "True/Ready"}),
        ("engines come first", replace(behind(reason="NoMembers"), engines=(PREFILL, replace(DECODE, ready=False))), {"Available": "False/NoEngineReady", "Ready": "False/EnginesNotReady"}),
    ],
)  # fmt: skip
def test_conditions_behind_a_router(what: str, report: Report, expected: dict[str, str]) -> None:
    assert {kind: verdict(report)[kind] for kind in expected} == expected, what


def test_the_routers_own_words_reach_the_conditions() -> None:
    found = status(behind(reason="NoMembers", message=NOT_HEALTHY), {}, NOW)
    words = {condition["type"]: condition["message"] for condition in found["conditions"]}
    assert (words["Available"], words["Ready"]) == (
        NOT_HEALTHY,
        f"0 of 1 router pods are ready. NoMembers: {NOT_HEALTHY}",
    )


def test_status_shows_where_requests_go_and_who_answers() -> None:
    assert status(behind(), {}, NOW)["router"] == {
        "address": "demo-router.default.svc:8000", "wanted": 1, "ready": 1, "members": 2, "revision": "r1",
    }  # fmt: skip


def test_a_transition_time_moves_only_with_the_status() -> None:
    before = status(replace(UP, engines=(PREFILL, replace(DECODE, ready=False))), {}, EARLIER)
    after = status(UP, before, NOW)
    times = {condition["type"]: condition["lastTransitionTime"] for condition in after["conditions"]}
    assert (times["Ready"], times["Accepted"]) == (NOW, EARLIER)


def test_the_same_report_gives_the_same_status() -> None:
    before = status(UP, {}, EARLIER)
    assert status(UP, before, NOW) == before


def test_every_condition_has_the_generation_and_a_message() -> None:
    found = status(replace(UP, router=ROUTER, pools=(PoolState("demo-pool", 1, 1),)), {}, NOW)
    assert [condition["type"] for condition in found["conditions"]] == list(reasons.CONDITIONS)
    assert all(condition["observedGeneration"] == 3 and condition["message"] for condition in found["conditions"])


def test_engines_show_their_ports_and_roles_their_counts() -> None:
    found = status(UP, {}, NOW)
    assert found["engines"][0] == {
        "role": "prefill",
        "index": 0,
        "revision": "r1",
        "ready": True,
        "reason": "Ready",
        "nodes": ["n1"],
        "kvPort": 22000,
        "kvPortLast": 22008,
    }
    assert found["roles"]["decode"] == {"wanted": 1, "ready": 1, "updated": 1, "summary": "1/1"}


def test_lists_are_bounded_and_the_rest_is_counted() -> None:
    many = tuple(replace(PREFILL, index=index) for index in range(200))
    found = status(replace(UP, engines=many, findings=(ERROR,) * 100), {}, NOW)
    assert (len(found["engines"]), found["engineCount"], len(found["findings"])) == (128, 200, 64)


def test_an_absent_api_is_named_with_its_remedy() -> None:
    """Each API once, whatever number of objects of it could not be made."""
    said = missing(["LeaderWorkerSet", "LeaderWorkerSet", "PodGroup"])
    assert said.count("LeaderWorkerSet v0.6.0 or newer") == 1
    assert "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/releases" in said
    assert "Volcano" in said
