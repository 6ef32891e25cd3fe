"""What holds an engine up, in the words of whoever does."""

from __future__ import annotations

from typing import Any

import pytest

from kvpp_operator import names
from kvpp_operator.report.engines import WantedEngine, engine_states, unexplained

LABELS = {names.ROLE: "prefill", names.ENGINE: "0", names.REVISION: "r1"}
WISHED = {"kind": "Deployment", "metadata": {"name": "demo-p0-x", "labels": LABELS}, "spec": {}}
GROUP = {
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "demo-p0-x", "labels": LABELS},
    "spec": {"leaderWorkerTemplate": {"size": 2}},
}


def live(**status: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "demo-p0-x", "labels": LABELS, "generation": 2},
        "spec": {},
        "status": status,
    }


def pod(name: str = "p", *, leaving: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": LABELS, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {})}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}


def pool_pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "demo-pool-1", "labels": {names.POOL: "1"}}, "spec": {}, "status": status}


def ready(name: str, **more: Any) -> dict[str, Any]:
    return pod(name, conditions=[{"type": "Ready", "status": "True"}], **more)


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [state]}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 4 Insufficient huawei.com/npu.",
}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
OOM = "(Worker_TP3 pid=321) ERROR [core.py:790] torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB"
LOG = f"INFO loading\n{OOM}\nRuntimeError: Engine core initialization failed. See root cause above.\n"
HINT = "[memory: lower gpuMemoryUtilization or maxModelLen; KVPP's transfer and pool need room too; engine-codes.md#npu-out-of-memory]"
WAITING = pod(
    initContainerStatuses=[{"name": names.POOL_WAIT, "state": {"running": {}}}],
    **container(state={"waiting": {"reason": "PodInitializing"}}),
)
LOADING = pod(phase="Running", **container(state={"running": {}}))


@pytest.mark.parametrize(
    ("what", "workload", "pods", "reason"),
    [
        ("nothing yet", None, [], "NotCreated: the engine's workload does not exist yet"),
        ("an old status", live(observedGeneration=1, updatedReplicas=1, readyReplicas=1), [], "Starting: waiting for the pod"),
        ("ready", live(observedGeneration=2, updatedReplicas=1, readyReplicas=1), [], "Ready"),
        ("a quota", live(conditions=[{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: npus"}]), [],
         "FailedCreate: exceeded quota: npus [admission: raise the quota or lower replicas; engine-codes.md#quota]"),
        ("no NPUs", live(), [pod(conditions=[UNSCHEDULABLE])],
         "Unschedulable: 0/4 nodes are available: 4 Insufficient huawei.com/npu [scheduling: add nodes, free NPUs, or lower replicas; engine-codes.md#npus-used-up]"),
        ("no image", live(), [pod(**container(state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}))],
         "ImagePullBackOff: Back-off pulling image [pull: check engine.image, imagePullSecrets and the mirror; engine-codes.md#image-pull]"),
        ("a crash loop tells the log's own cause", live(), [pod(**container(state=BACK_OFF, lastState={"terminated": {"exitCode": 1, "message": LOG}}))],
         f"CrashLoopBackOff: {OOM} {HINT}"),
        ("a crash that nobody knows", live(), [pod(**container(state=BACK_OFF, lastState={"terminated": {"exitCode": 3, "reason": "Error", "message": "a\nFooError: bar\nbye"}}))],
         "CrashLoopBackOff: FooError: bar"),
        ("a crash without a word", live(), [pod(**container(state=BACK_OFF, lastState={"terminated": {"exitCode": 3, "reason": "Error"}}))],
         "CrashLoopBackOff: exit code 3"),
        ("running again after a crash", live(), [pod(phase="Running", **container(state={"running": {}}, lastState={"terminated": {"exitCode": 1, "reason": "Error", "message": OOM}}))],
         f"Error: exit code 1. {OOM} {HINT}"),
        ("killed for memory", live(), [pod(phase="Running", **container(state={"running": {}}, lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))],
         "OOMKilled: exit code 137 [memory: raise the memory limit in podTemplate; engine-codes.md#host-out-of-memory]"),
        ("waiting for the pool", live(), [WAITING], "WaitingForPool: its service does not answer yet"),
        ("the pool says why", live(), [WAITING, pool_pod(**container(state={"waiting": {"reason": "InvalidImageName", "message": "x y"}}))],
         "WaitingForPool: its service does not answer yet; demo-pool-1: InvalidImageName: x y [pull: check engine.image, imagePullSecrets and the mirror; engine-codes.md#image-pull]"),
        ("the pool is under way", live(), [WAITING, pool_pod(phase="Running")], "WaitingForPool: its service does not answer yet"),
        ("the pool answers", live(), [pod(initContainerStatuses=[{"name": names.POOL_WAIT, "state": {"terminated": {"exitCode": 0}}}],
                                          **container(state={"waiting": {"reason": "PodInitializing"}}))],
         "Creating: the container is being created"),
        ("loading", live(), [LOADING], "Loading: the engine runs but is not ready yet"),
        ("being stopped", live(), [pod(leaving=True, phase="Running", **container(state={"terminated": {"exitCode": 143, "reason": "Error"}}))],
         "Terminating: the pod is being stopped"),
        ("on a lost node", live(), [pod(leaving=True, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint"}])],
         "Evicted: Taint manager: deleting due to NoExecute taint [scheduling: the engine comes back on another node; engine-codes.md#node-lost]"),
    ],
)  # fmt: skip
def test_reason(what: str, workload: Any, pods: list[Any], reason: str) -> None:
    [state] = engine_states([WantedEngine(WISHED, 22000, 22008)], [workload] if workload else [], pods)
    assert state.reason == reason, what


@pytest.mark.parametrize(
    ("what", "pods", "reason"),
    [
        ("all ranks ready", [ready("a"), ready("b")], "Ready"),
        ("a rank is loading", [ready("a"), pod("b", phase="Running")], "Loading: the engine runs but is not ready yet"),
        ("a rank is missing", [ready("a")], "Starting: 1 of 2 pods exist"),
        ("a rank is leaving", [ready("a"), {**ready("b"), "metadata": pod(leaving=True)["metadata"]}], "Terminating: the pod is being stopped"),
        ("a lost node's word before that of the others", [pod("a", leaving=True), pod("b", leaving=True, conditions=[{"type": "DisruptionTarget", "status": "True", "message": "x"}])], "Evicted: x"),
        ("what waits for a node comes first", [LOADING, pod("b", conditions=[{**UNSCHEDULABLE, "message": "no"}])], "Unschedulable: no"),
    ],
)  # fmt: skip
def test_a_group_is_ready_with_all_its_ranks(what: str, pods: list[Any], reason: str) -> None:
    """Whatever the group's own status says: it names no generation."""
    workload = {**GROUP, "status": {"readyReplicas": 1, "updatedReplicas": 1}}
    [state] = engine_states([WantedEngine(GROUP, None, None)], [workload], pods)
    assert (state.reason, state.ready) == (reason, reason == "Ready"), what


def reasons(*rounds: list[Any]) -> list[str]:
    """The engine's reason after each look, the last status being remembered."""
    found: list[str] = []
    before: list[dict[str, Any]] = []
    for pods in rounds:
        [state] = engine_states([WantedEngine(GROUP, None, None)], [GROUP], pods, before=before)
        before = [state.to_json()]
        found.append(state.reason)
    return found


def test_the_failure_of_a_group_is_remembered_while_it_is_made_anew() -> None:
    crashed = pod(
        "b", phase="Running", **container(state={"terminated": {"exitCode": 1, "reason": "Error", "message": OOM}})
    )
    leaving = pod("b", leaving=True, **container(state={"terminated": {"exitCode": 143, "reason": "Error"}}))
    failure = f"Error: exit code 1. {OOM} {HINT}"
    assert reasons(
        [LOADING, crashed], [leaving], [], [LOADING, LOADING], [ready("a"), ready("b")], [LOADING, LOADING]
    ) == [
        failure,
        f"Terminating: the pod is being stopped; last failure: {failure}",
        f"Starting: waiting for the pod; last failure: {failure}",
        f"Loading: the engine runs but is not ready yet; last failure: {failure}",
        "Ready",
        "Loading: the engine runs but is not ready yet",
    ]


def test_waiting_for_a_node_is_no_failure_to_remember() -> None:
    assert (
        reasons([pod(conditions=[{**UNSCHEDULABLE, "message": "no"}])], [LOADING, LOADING])[-1]
        == "Loading: the engine runs but is not ready yet"
    )


def test_events_explain_what_pods_and_workloads_do_not() -> None:
    told = {
        "demo-p0-x": 'FailedCreate: pods "demo-p0-x-0" is forbidden: no',
        "p": "FailedMount: hostPath type check failed: /etc/hccn.conf is not a file",
    }
    creating = pod(**container(state={"waiting": {"reason": "ContainerCreating"}}))
    wanted = [WantedEngine(WISHED, None, None)]
    [missing] = engine_states(wanted, [live()], [])
    [stuck] = engine_states(wanted, [live()], [creating])
    assert unexplained([missing, stuck]) == [missing, stuck]
    [missing] = engine_states(wanted, [live()], [], told=told)
    [stuck] = engine_states(wanted, [live()], [creating], told={"p": told["p"]})
    assert missing.reason == 'FailedCreate: pods "demo-p0-x-0" is forbidden: no'
    assert stuck.reason == (
        "FailedMount: hostPath type check failed: /etc/hccn.conf is not a file"
        " [mounts: make the path exist on that node; engine-codes.md#host-file-missing]"
    )


def test_events_explain_what_keeps_the_pool() -> None:
    waits = [WAITING, pool_pod(**container(state={"waiting": {"reason": "ContainerCreating"}}))]
    wanted = [WantedEngine(WISHED, None, None)]
    [state] = engine_states(wanted, [live()], waits)
    assert unexplained([state]) == [state]
    told = {"demo-pool-1": 'FailedMount: secret "kv-tls" not found'}
    [state] = engine_states(wanted, [live()], waits, told=told)
    assert state.reason.startswith(
        'WaitingForPool: its service does not answer yet; demo-pool-1: FailedMount: secret "kv-tls" not found'
    )


def test_an_engine_of_another_revision_is_not_mistaken_for_ours() -> None:
    other = pod(conditions=[UNSCHEDULABLE])
    other["metadata"]["labels"] = {**LABELS, names.REVISION: "r2"}
    [state] = engine_states([WantedEngine(WISHED, None, None)], [live()], [other])
    assert (state.reason, state.nodes) == ("Starting: waiting for the pod", ())


def test_reasons_are_bounded_and_one_line() -> None:
    long = pod(conditions=[{**UNSCHEDULABLE, "message": "x\n" * 5000}])
    [state] = engine_states([WantedEngine(WISHED, None, None)], [live()], [long])
    assert len(state.reason) < 512
    assert "\n" not in state.reason
