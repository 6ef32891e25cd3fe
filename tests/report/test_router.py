"""Live router pods and their ConfigMap → the router's state."""

from __future__ import annotations

from typing import Any

import pytest

from kvpp_operator import names
from kvpp_operator.manifest import Manifest, key_of
from kvpp_operator.report.router import PodReport, RouterState, parse, router_state, router_workload, stale
from kvpp_operator.router.members import Member
from kvpp_operator.router.standing import Reason, Report, Standing

LABELS = {names.DEPLOYMENT: "glm", names.COMPONENT: names.ROUTER}
MEMBERS = frozenset(
    {Member("prefill", "10.0.0.1:8000"), Member("prefill", "10.0.0.2:8000"), Member("decode", "10.0.0.3:8000")}
)


def thing(kind: str, **more: Any) -> Manifest:
    version = {"Deployment": "apps/v1"}.get(kind, "v1")
    metadata = {"name": "glm-router", "namespace": "ns", "labels": LABELS, "generation": 1}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


WISHED = thing("Deployment", spec={"replicas": 2})
LIVE = {**WISHED, "status": {"observedGeneration": 1, "updatedReplicas": 2}}
SERVICE = thing("Service", spec={"ports": [{"port": 8000}]})


def pod(name: str, *, ready: bool = True, leaving: bool = False, **status: Any) -> Manifest:
    metadata = {"name": name, "labels": LABELS, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {})}
    condition = {"type": "Ready", "status": str(ready)}
    return {"metadata": metadata, "status": {"phase": "Running", "conditions": [condition], **status}}


def said(reason: Reason = Reason.SERVING, message: str = "", members: frozenset[Member] = MEMBERS) -> str:
    return Report(Standing(reason, message), "r1", members, "seen").text()


def state(pods: list[Manifest], *things: Manifest, **data: str) -> RouterState:
    owned = [LIVE, SERVICE, thing("ConfigMap", data={name.replace("_", "-"): text for name, text in data.items()})]
    return router_state(WISHED, {key_of(one): one for one in (*owned, *things)}, pods)


@pytest.mark.parametrize(("gone", "taken"), [(32, 0), (33, 33)])
def test_what_killed_pods_left_is_taken_away_when_it_is_much(gone: int, taken: int) -> None:
    config = thing("ConfigMap", data={name: said() for name in ("a", *(f"gone-{number:02}" for number in range(gone)))})
    found = stale(config, [pod("a")])
    assert (len(found), "a" in found) == (taken, False)
    assert stale({}, []) == []


def test_what_an_agent_writes_is_understood() -> None:
    assert parse(said()) == PodReport("Serving", "", "r1", members=3, handover="seen")


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"members": 3}', '{"members": {"prefill": 1}}'])
def test_what_nobody_has_written_is_passed_over(text: str) -> None:
    assert parse(text) is None
    assert state([pod("a")], a=text).reports == ()


def test_all_is_well() -> None:
    found = state([pod("a"), pod("b")], a=said(), b=said(members=MEMBERS - {Member("prefill", "10.0.0.2:8000")}))
    assert found.to_json() == {
        "address": "glm-router.ns.svc:8000", "wanted": 2, "ready": 2, "members": 2, "revision": "r1",
    }  # fmt: skip
    assert (found.is_current, found.obstacle) == (True, "")


def test_only_pods_that_are_there_count() -> None:
    """A pod that was killed can't take its words back."""
    found = state([pod("a"), pod("b", leaving=True)], a=said(), b=said(Reason.STOPPING), c=said(Reason.NO_MEMBERS))
    assert [report.reason for report in found.reports] == ["Serving"]
    assert (found.ready, found.obstacle) == (1, "Starting: waiting for the pod")


@pytest.mark.parametrize(
    ("what", "one", "obstacle"),
    [
        ("the agent knows best", pod("b", ready=False), "NoMembers: no healthy decode engine"),
        ("it has said nothing", pod("c", ready=False), "Starting: no router pod has said anything yet"),
        ("its image is missing", pod("c", ready=False, containerStatuses=[{"name": "agent", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]), "ImagePullBackOff: no such image"),
    ],
)  # fmt: skip
def test_what_holds_it_up(what: str, one: Manifest, obstacle: str) -> None:
    found = state([pod("a"), one], a=said(), b=said(Reason.NO_MEMBERS, "no healthy decode engine"))
    assert found.obstacle.startswith(obstacle), what


def test_nothing_exists_yet() -> None:
    found = router_state(WISHED, {}, [])
    assert (found.address, found.ready, found.members) == ("glm-router.ns.svc:8000", 0, None)
    assert (found.is_current, found.obstacle) == (False, "NotCreated: the router does not exist yet")


def test_a_load_balancer_is_the_address() -> None:
    balanced = {**SERVICE, "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}}
    assert state([], balanced).address == "203.0.113.7:8000"


def test_the_routers_deployment_is_found_among_engines() -> None:
    engine = thing("Deployment")
    engine["metadata"] = {**engine["metadata"], "labels": {names.COMPONENT: "prefill"}}
    assert router_workload([engine, SERVICE, WISHED]) is WISHED
    assert router_workload([engine, SERVICE]) is None
