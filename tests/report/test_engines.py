"""What holds an engine up, in the words of whoever does."""

from __future__ import annotations

from typing import Any

import pytest

from kvpp_operator import names
from kvpp_operator.report.engines import WantedEngine, engine_states

LABELS = {names.ROLE: "prefill", names.ENGINE: "0", names.REVISION: "r1"}
WISHED = {"kind": "Deployment", "metadata": {"name": "demo-p0-x", "labels": LABELS}}


def live(**status: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "demo-p0-x", "labels": LABELS, "generation": 2},
        "status": status,
    }


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "labels": LABELS}, "spec": {"nodeName": "n1"}, "status": status}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 4 Insufficient huawei.com/npu.",
}
CRASH = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}


@pytest.mark.parametrize(
    ("workload", "pods", "reason"),
    [
        (None, [], "NotCreated: the engine's workload does not exist yet"),
        (live(observedGeneration=1, updatedReplicas=1, readyReplicas=1), [], "Starting: waiting for the pod"),
        (live(observedGeneration=2, updatedReplicas=1, readyReplicas=1), [], "Ready"),
        (live(conditions=[{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: npus"}]), [], "FailedCreate: exceeded quota: npus"),
        (live(), [pod(conditions=[UNSCHEDULABLE])], "Unschedulable: 0/4 nodes are available: 4 Insufficient huawei.com/npu"),
        (live(), [pod(containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}])], "ImagePullBackOff: Back-off pulling image"),
        (live(), [pod(containerStatuses=[{"state": CRASH, "lastState": {"terminated": {"exitCode": 1, "message": "NPU out of memory"}}}])], "CrashLoopBackOff: NPU out of memory"),
        (live(), [pod(phase="Running", containerStatuses=[{"state": {"running": {}}}])], "Loading: the engine runs but is not ready yet"),
    ],
)  # fmt: skip
def test_reason(workload: Any, pods: list[Any], reason: str) -> None:
    [state] = engine_states([WantedEngine(WISHED, 22000, 22008)], [workload] if workload else [], pods)
    assert state.reason == reason


def test_an_engine_of_another_revision_is_not_mistaken_for_ours() -> None:
    other = pod(conditions=[UNSCHEDULABLE])
    other["metadata"]["labels"] = {**LABELS, names.REVISION: "r2"}
    [state] = engine_states([WantedEngine(WISHED, None, None)], [live()], [other])
    assert (state.reason, state.nodes) == ("Starting: waiting for the pod", ())
