from __future__ import annotations

from typing import Any

import pytest

from kvpp_devcluster import podstatus

WAITING = {"waiting": {"reason": "PodInitializing"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ADDRESSES = {"pod": "10.244.0.1", "host": "10.1.0.1"}
NOW = "2026-01-01T00:00:09Z"


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}}


def pod(policy: str = "Always", *, inits: int = 0, status: dict[str, Any] | None = None) -> dict[str, Any]:
    init_containers = [{"name": f"init-{index}", "image": "i"} for index in range(inits)]
    spec = {"restartPolicy": policy, "initContainers": init_containers, "containers": [{"name": "vllm", "image": "v"}]}
    return {"metadata": {"name": "p", "generation": 1}, "spec": spec, "status": status or {}}


@pytest.mark.parametrize(
    ("policy", "init", "main", "expected"),
    [
        ("Always", WAITING, WAITING, "Pending"),
        ("Always", RUNNING, WAITING, "Pending"),
        ("Always", ended(0), RUNNING, "Running"),
        ("Always", ended(0), ended(1), "Running"),
        ("OnFailure", ended(0), ended(0), "Succeeded"),
        ("OnFailure", ended(0), ended(1), "Running"),
        ("Never", ended(0), ended(0), "Succeeded"),
        ("Never", ended(0), ended(1), "Failed"),
        ("Never", ended(1), WAITING, "Failed"),
        ("OnFailure", ended(1), WAITING, "Pending"),
    ],
)
def test_the_phase_follows_the_containers_and_the_restart_policy(
    policy: str, init: dict[str, Any], main: dict[str, Any], expected: str
) -> None:
    containers = podstatus.containers_of(pod(policy, inits=1))
    containers[0].state, containers[1].state = init, main
    assert expected == podstatus.phase(containers, policy)


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in status["conditions"]}


def test_a_pod_is_ready_when_its_containers_are() -> None:
    subject = pod()
    containers = podstatus.containers_of(subject)
    containers[0].state = RUNNING
    unready = podstatus.build(subject, {}, containers, ADDRESSES, now=NOW)
    containers[0].is_ready = True
    ready = podstatus.build(subject, unready, containers, ADDRESSES, now="2026-01-01T00:00:20Z")

    assert (conditions(unready)) == {
        "Initialized": "True",
        "PodReadyToStartContainers": "True",
        "ContainersReady": "False",
        "Ready": "False",
    }
    assert conditions(ready)["Ready"] == "True"
    times = {entry["type"]: entry["lastTransitionTime"] for entry in ready["conditions"]}
    assert times["Ready"] == "2026-01-01T00:00:20Z"
    assert times["Initialized"] == NOW


def test_a_readiness_gate_holds_the_pod_back() -> None:
    subject = pod()
    subject["spec"]["readinessGates"] = [{"conditionType": "example.com/routed"}]
    containers = podstatus.containers_of(subject)
    containers[0].state, containers[0].is_ready = RUNNING, True
    closed = podstatus.build(subject, {}, containers, ADDRESSES, now=NOW)
    subject["status"] = {"conditions": [{"type": "example.com/routed", "status": "True"}]}
    opened = podstatus.build(subject, closed, containers, ADDRESSES, now=NOW)

    assert (conditions(closed)["ContainersReady"], conditions(closed)["Ready"]) == ("True", "False")
    assert conditions(opened)["Ready"] == "True"


def test_what_was_written_needs_no_second_write() -> None:
    """The API server drops empty fields and adds conditions of others; neither is a difference."""
    subject = pod(inits=1)
    containers = podstatus.containers_of(subject)
    containers[0].state, containers[1].state = ended(0), RUNNING
    wish = podstatus.build(subject, {}, containers, ADDRESSES, now=NOW)
    live = {key: value for key, value in wish.items() if value}
    live["conditions"] = [
        {key: value for key, value in entry.items() if value is not None} for entry in reversed(wish["conditions"])
    ]
    live["conditions"].append({"type": "PodScheduled", "status": "True"})

    assert podstatus.is_within(wish, live)
    assert not podstatus.is_within({**wish, "phase": "Failed"}, live)


def test_containers_are_taken_over_as_they_were() -> None:
    status = {"containerStatuses": [{"name": "vllm", "state": RUNNING, "ready": True, "restartCount": 3}]}
    container = podstatus.containers_of(pod(status=status))[0]
    assert (container.is_running, container.is_ready, container.restart_count) == (True, True, 3)
