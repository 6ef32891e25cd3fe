"""The router of a deployment on a real API server. Its pods are simulated; what an agent would write, the tests write."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import specs
from operator_process import Cluster, Operator, eventually

from kvpp_operator import names
from kvpp_operator.router.members import Member, Role
from kvpp_operator.router.standing import Reason, Report, Standing

pytestmark = pytest.mark.cluster


def router_pods(user: Cluster) -> list[dict[str, Any]]:
    return [pod for pod in user.items("pods") if pod["metadata"]["labels"].get(names.COMPONENT) == names.ROUTER]


def says(user: Cluster, pod: str, revision: str, standing: Standing, *, members: int, handover: str = "seen") -> None:
    """Write what the pod's agent would, as it would."""
    roles: tuple[Role, ...] = ("prefill", "decode")
    behind = frozenset(Member(role, f"10.0.0.{number}:8000") for number, role in enumerate(roles[:members]))
    patch = {"data": {pod: Report(standing, revision, behind, handover).text()}}
    user.kubectl(
        "patch", "configmap", "demo-router", "--type=merge", "--field-manager=kvpp-router", "-p", json.dumps(patch)
    )


def shown(user: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = user.deployment("demo")["status"].get("router", {})
    return found


def versions(user: Cluster) -> dict[str, str]:
    things = [*user.owned("demo"), user.deployment("demo")]
    return {f"{one['kind']} {one['metadata']['name']}": one["metadata"]["resourceVersion"] for one in things}


def test_status_says_what_the_router_says_and_nothing_else_is_written(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")
    address = f"demo-router.{user.namespace}.svc:8000"
    assert shown(user) == {"address": address, "wanted": 1, "ready": 1}
    [pod] = [pod["metadata"]["name"] for pod in router_pods(user)]
    revision = user.deployment("demo")["status"]["revision"]

    says(user, pod, revision, Standing(Reason.SERVING), members=2)
    serving = {"address": address, "wanted": 1, "ready": 1, "members": 2, "revision": revision}
    eventually(lambda: shown(user) == serving, what=f"{serving}; {shown(user)}")
    assert user.wait("demo", "HandoverSeen")["reason"] == "HandoverSeen"

    before = versions(user)
    says(user, pod, revision, Standing(Reason.SERVING, "in other words"), members=2)
    says(user, "a-pod-that-is-gone", "r0", Standing(Reason.CANARY_FAILED, "lies"), members=0, handover="not seen")
    time.sleep(1.5)
    changed = {name for name, version in versions(user).items() if version != before[name]}
    assert changed == {"ConfigMap demo-router"}

    says(user, pod, revision, Standing(Reason.SERVING), members=2, handover="not seen")
    assert user.wait("demo", "HandoverSeen", "False")["reason"] == "HandoverNotSeen"


def test_a_failed_canary_is_told_in_the_routers_words(user: Cluster, operator: Operator) -> None:
    never = {"metadata": {"annotations": {"devcluster.kvpp.io/never-ready": "true"}}}
    user.apply(specs.deployment(specs.DISAGGREGATED, router={"podTemplate": never}))
    [pod] = eventually(lambda: router_pods(user))
    waiting = user.wait("demo", "Available", "False")
    revision = user.deployment("demo")["status"]["revision"]
    says(
        user,
        pod["metadata"]["name"],
        revision,
        Standing(Reason.CANARY_FAILED, "other text"),
        members=2,
        handover="not seen",
    )
    eventually(lambda: user.condition("demo", "Available")["reason"] == "CanaryFailed", what=str(waiting))
    told = {kind: user.condition("demo", kind) for kind in ("Available", "HandoverSeen", "Ready")}
    assert {kind: (one["status"], one["reason"]) for kind, one in told.items()} == {
        "Available": ("False", "CanaryFailed"), "HandoverSeen": ("False", "CanaryFailed"), "Ready": ("False", "RouterNotReady"),
    }  # fmt: skip
    assert told["Available"]["message"] == "other text"


def test_new_engines_restart_no_router(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")
    old, before = user.deployment("demo")["status"]["revision"], {pod["metadata"]["uid"] for pod in router_pods(user)}
    user.apply(specs.deployment(specs.DISAGGREGATED, prefill__scheduler={"maxNumSeqs": 4}))
    user.wait("demo", "Ready")
    new = user.deployment("demo")["status"]["revision"]
    assert new != old
    assert {pod["metadata"]["uid"] for pod in router_pods(user)} == before
    services = {one["metadata"]["name"]: one["metadata"]["labels"] for one in user.get("services")["items"]}
    assert services["demo-router"][names.REVISION] == new
    eventually(
        lambda: (
            {f"demo-p-{new}", f"demo-d-{new}"}
            == {
                one["metadata"]["name"]
                for one in user.get("services")["items"]
                if names.REVISION in one["metadata"]["labels"]
            }
            - {"demo-router"}
        ),
        what="Services of the old revision gone",
    )
    labels = f"{names.DEPLOYMENT}=demo,{names.REVISION}={new},{names.ROLE}"
    slices = user.get("endpointslices", "--selector", labels)["items"]
    assert {piece["metadata"]["labels"][names.ROLE]: [port["port"] for port in piece["ports"]] for piece in slices} == {
        "prefill": [8000], "decode": [8000],
    }  # fmt: skip


def test_without_a_router_only_services_are_left(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")
    user.apply(specs.deployment(specs.DISAGGREGATED, router={"type": "None"}))
    eventually(lambda: not router_pods(user))
    user.wait("demo", "Ready")
    found = {one["metadata"]["name"] for one in user.owned("demo") if one["kind"] in ("Service", "Role", "ConfigMap")}
    revision = user.deployment("demo")["status"]["revision"]
    assert found == {"demo-decode", "demo-prefill", f"demo-p-{revision}", f"demo-d-{revision}"}
    assert "router" not in user.deployment("demo")["status"]
    assert user.condition("demo", "HandoverSeen") == {}


def test_a_cluster_without_kthena_is_told_so(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED, router={"type": "Kthena"}))
    missing = user.wait("demo", "Applied", "False")
    assert (missing["reason"], "kthena" in missing["message"]) == ("MissingApi", True)


def test_words_of_pods_that_were_killed_do_not_pile_up(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")
    [pod] = [pod["metadata"]["name"] for pod in router_pods(user)]
    text = Report(Standing(Reason.SERVING), "r0", frozenset(), "seen").text()
    data = dict.fromkeys((pod, *(f"gone-{number}" for number in range(40))), text)
    user.kubectl("patch", "configmap", "demo-router", "--type=merge", "-p", json.dumps({"data": data}))
    eventually(lambda: set(user.get("configmap", "demo-router")["data"]) == {pod})
