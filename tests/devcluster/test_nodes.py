"""Simulated nodes under the real scheduler and the real controllers."""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from kvpp_devcluster import nodes
from kvpp_devcluster.faults import PREFIX
from kvpp_devcluster.nodes import NodeGroup
from kvpp_devcluster.processes import module_environment, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvpp_devcluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
CONTAINERS: list[Json] = [{"name": "vllm", "image": "engine"}]


def wait_for(read: Callable[[], Any], holds: Callable[[Any], bool], seconds: float = 30.0) -> Any:
    """Read until it holds and return what was read; the last reading stands in the failure."""
    deadline = time.monotonic() + seconds
    while not holds(seen := read()):
        assert time.monotonic() < deadline, f"waited in vain, last seen: {json.dumps(seen, indent=1, default=str)}"
        time.sleep(0.03)
    return seen


class Pods:
    """The pods of one namespace, in short words."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster, self.path = cluster, f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        faults = {PREFIX + key: value for key, value in (annotations or {}).items()}
        body = {"metadata": {"name": name, "annotations": faults}, "spec": {"containers": CONTAINERS, **spec}}
        self.cluster.control_plane.request("POST", self.path, body)

    def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        patch = {"metadata": {"annotations": {PREFIX + key: value for key, value in annotations.items()}}}
        content_type = "application/merge-patch+json"
        self.cluster.control_plane.request("PATCH", f"{self.path}/{name}", patch, content_type=content_type)

    def delete(self, name: str) -> None:
        self.cluster.control_plane.request("DELETE", f"{self.path}/{name}")

    def get(self, name: str) -> Json:
        pod: Json = self.cluster.get(f"{self.path}/{name}")
        return pod

    def all(self) -> list[Json]:
        items: list[Json] = self.cluster.get(self.path)["items"]
        return items

    def wait(self, name: str, holds: Callable[[Json], bool], seconds: float = 30.0) -> Json:
        pod: Json = wait_for(lambda: self.get(name), holds, seconds)
        return pod


@pytest.fixture
def pods(local_cluster: LocalCluster, namespace: str) -> Pods:
    return Pods(local_cluster, namespace)


def condition(pod: Json, kind: str) -> str:
    entries = pod.get("status", {}).get("conditions", [])
    return next((str(entry["status"]) for entry in entries if entry["type"] == kind), "Unknown")


def is_ready(item: Json) -> bool:
    return condition(item, "Ready") == "True"


def main_container(pod: Json) -> Json:
    status: Json = pod["status"].get("containerStatuses", [{}])[0]
    return status


def restarts(pod: Json) -> int:
    return int(main_container(pod).get("restartCount", 0))


def phase(pod: Json) -> str:
    return str(pod["status"].get("phase"))


@pytest.fixture
def own_nodes(local_cluster: LocalCluster) -> Iterator[list[str]]:
    """Two nodes with eight `example.com/npu-…` each, which no other test uses; the resource stands first in the list."""
    tag = secrets.token_hex(3)
    resource, names = f"example.com/npu-{tag}", [f"own-{tag}-{index}" for index in range(2)]
    for name in names:
        local_cluster.add_node(name, resources={resource: "8"})
    for name in names:
        wait_for(lambda name=name: local_cluster.get(f"/api/v1/nodes/{name}"), is_ready)  # type: ignore[misc]
    yield [resource, *names]
    for name in names:
        local_cluster.kubectl("delete", "node", name, "--ignore-not-found")


def asking_for(resource: str, count: int = 8) -> list[Json]:
    return [{"name": "vllm", "image": "engine", "resources": {"limits": {resource: str(count)}}}]


def test_default_nodes_carry_npus_and_leases(local_cluster: LocalCluster) -> None:
    node = local_cluster.get("/api/v1/nodes/npu-950-0")
    assert node["status"]["allocatable"]["huawei.com/npu"] == "8"
    assert node["metadata"]["labels"]["node.kubernetes.io/npu.chip.name"] == "Ascend950DT"
    lease = local_cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/npu-950-0")
    assert lease["spec"]["holderIdentity"] == "npu-950-0"


def test_npus_are_given_once_and_a_new_node_heals(
    local_cluster: LocalCluster, pods: Pods, own_nodes: list[str]
) -> None:
    resource, *names = own_nodes
    for index in range(3):
        pods.create(f"engine-{index}", containers=asking_for(resource))
    wait_for(pods.all, lambda items: sum(map(is_ready, items)) == 2)
    waiting = next(pod for pod in pods.all() if not is_ready(pod))
    said = wait_for(
        lambda: pods.get(waiting["metadata"]["name"]), lambda pod: condition(pod, "PodScheduled") == "False"
    )
    assert f"Insufficient {resource}" in said["status"]["conditions"][0]["message"]

    local_cluster.add_node(f"{names[0]}-more", resources={resource: "8"})
    wait_for(pods.all, lambda items: sum(map(is_ready, items)) == 3)
    local_cluster.delete_node(f"{names[0]}-more")


def test_each_pod_has_an_address_of_its_own(pods: Pods) -> None:
    for index in range(5):
        pods.create(f"pod-{index}")
    items = wait_for(pods.all, lambda items: all(map(is_ready, items)))
    assert len({pod["status"]["podIP"] for pod in items}) == 5


def test_a_host_network_pod_has_the_address_of_its_node(pods: Pods) -> None:
    pods.create("host", hostNetwork=True)
    status = pods.wait("host", is_ready)["status"]
    assert status["podIP"] == status["hostIP"]


def test_init_containers_end_and_sidecars_run(pods: Pods) -> None:
    inits = [{"name": "preflight", "image": "i"}, {"name": "log", "image": "i", "restartPolicy": "Always"}]
    pods.create("p", initContainers=inits)
    preflight, sidecar = pods.wait("p", is_ready)["status"]["initContainerStatuses"]
    assert preflight["state"]["terminated"]["reason"] == "Completed"
    assert "running" in sidecar["state"]


def test_a_pod_is_ready_after_its_delay(pods: Pods) -> None:
    pods.create("slow", {"start-delay": "1"})
    running = pods.wait("slow", lambda pod: phase(pod) == "Running")
    assert not is_ready(running)
    pods.wait("slow", is_ready)


def test_readiness_follows_the_annotation_on_a_live_pod(pods: Pods) -> None:
    pods.create("p", {"never-ready": "true"})
    pods.wait("p", lambda pod: phase(pod) == "Running" and condition(pod, "Ready") == "False")
    pods.annotate("p", {"never-ready": None})
    pods.wait("p", is_ready)
    pods.annotate("p", {"never-ready": "true"})
    pods.wait("p", lambda pod: not is_ready(pod))


@pytest.mark.parametrize(("code", "expected"), [("0", "Succeeded"), ("3", "Failed")])
def test_a_pod_that_may_not_restart_ends(pods: Pods, code: str, expected: str) -> None:
    pods.create("job", {"exit-code": code, "termination-message": "no weights"}, restartPolicy="Never")
    pod = pods.wait("job", lambda pod: phase(pod) == expected)
    ended = main_container(pod)["state"]["terminated"]
    assert (int(code), "no weights") == (ended["exitCode"], ended["message"])


def test_a_crashing_container_restarts_and_keeps_its_last_words(pods: Pods) -> None:
    pods.create("p", {"exit-code": "1", "termination-message": "out of memory"})
    pod = pods.wait("p", lambda pod: restarts(pod) >= 1)
    assert main_container(pod)["lastState"]["terminated"]["message"] == "out of memory"
    pods.wait("p", lambda pod: main_container(pod)["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")


def test_a_failing_init_container_holds_the_pod_back(pods: Pods) -> None:
    pods.create("p", {"exit-code": "1", "container": "preflight"}, initContainers=[{"name": "preflight", "image": "i"}])
    pod = pods.wait("p", lambda pod: pod["status"].get("initContainerStatuses", [{}])[0].get("restartCount", 0) >= 1)
    assert (phase(pod), condition(pod, "Initialized")) == ("Pending", "False")
    pods.annotate("p", {"exit-code": None, "container": None})
    pods.wait("p", is_ready)


def test_a_waiting_reason_stays_until_it_is_taken_away(pods: Pods) -> None:
    pods.create("p", {"waiting": "ImagePullBackOff: no such image"})
    pod = pods.wait("p", lambda pod: "ImagePullBackOff" in json.dumps(pod["status"]))
    assert main_container(pod)["state"] == {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    assert phase(pod) == "Pending"
    pods.annotate("p", {"waiting": None})
    pods.wait("p", is_ready)


def test_the_status_is_the_kubelets(local_cluster: LocalCluster, pods: Pods) -> None:
    """kube-controller-manager marks pods of a silent node as not ready; a kubelet that is back says otherwise."""
    pods.create("p")
    pods.wait("p", is_ready)
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    content_type = "application/strategic-merge-patch+json"
    answer = local_cluster.control_plane.request("PATCH", f"{pods.path}/p/status", patch, content_type=content_type)
    assert not is_ready(answer)
    pods.wait("p", is_ready)


def test_a_killed_container_comes_back(pods: Pods) -> None:
    pods.create("p")
    pods.wait("p", is_ready)
    pods.annotate("p", {"kill": "1"})
    pod = pods.wait("p", lambda pod: restarts(pod) == 1 and is_ready(pod))
    assert main_container(pod)["lastState"]["terminated"]["exitCode"] == 137


def test_a_deleted_pod_takes_its_time_and_goes(pods: Pods) -> None:
    pods.create("p", {"stop-delay": "1"})
    pods.wait("p", is_ready)
    pods.delete("p")
    assert is_ready(pods.get("p")), "the container still runs"
    wait_for(pods.all, lambda items: not items)


def test_a_lost_node_is_tainted_and_returns(local_cluster: LocalCluster, pods: Pods, own_nodes: list[str]) -> None:
    resource, *names = own_nodes
    pods.create("engine", containers=asking_for(resource))
    pod = pods.wait("engine", is_ready)
    host = pod["spec"]["nodeName"]
    assert host in names

    local_cluster.lose_node(host)
    wait_for(
        lambda: local_cluster.get(f"/api/v1/nodes/{host}"),
        lambda node: "node.kubernetes.io/unreachable" in json.dumps(node["spec"].get("taints", [])),
        seconds=60,
    )
    pods.wait("engine", lambda pod: not is_ready(pod))
    pods.delete("engine")
    time.sleep(0.5)
    assert "deletionTimestamp" in pods.get("engine")["metadata"], "nobody on the lost node ends the pod"

    local_cluster.bring_back_node(host)
    wait_for(
        lambda: local_cluster.get(f"/api/v1/nodes/{host}"),
        lambda node: is_ready(node) and not node["spec"].get("taints"),
    )
    wait_for(pods.all, lambda items: not items)


def test_pods_survive_a_restart_of_the_api_server(local_cluster: LocalCluster, pods: Pods) -> None:
    pods.create("before")
    before = pods.wait("before", is_ready)
    local_cluster.control_plane.restart_apiserver()
    pods.create("after")
    pods.wait("after", is_ready)
    assert before["status"]["containerStatuses"] == pods.get("before")["status"]["containerStatuses"]


def test_another_simulation_takes_running_pods_over(
    local_cluster: LocalCluster, pods: Pods, own_nodes: list[str]
) -> None:
    """As after a crash of the simulation: the second one, beside the first, finds all done and writes nothing."""
    pods.create("p", containers=asking_for(own_nodes[0]))
    before = pods.wait("p", is_ready)
    log = local_cluster.control_plane.logs / "second-nodes.log"
    command = [sys.executable, "-m", "kvpp_devcluster", "nodes", "--kubeconfig", str(local_cluster.kubeconfig)]
    second = spawn("nodes", command, log=log, env=module_environment())
    try:
        pods.annotate("p", {"start-delay": "0"})  # an event that both see
        time.sleep(1)
        second.require_running()
    finally:
        second.stop()
    assert before["status"] == pods.get("p")["status"]
    assert log.read_text() == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name=a", NodeGroup("a", 1)),
        ("name=950,count=4,resource=huawei.com/npu:8", NodeGroup("950", 4, {"huawei.com/npu": "8"})),
        (
            "name=a,count=2,label=k/x:v,label=y:,resource=r/a:1,resource=r/b:2",
            NodeGroup("a", 2, {"r/a": "1", "r/b": "2"}, {"k/x": "v", "y": ""}),
        ),
    ],
)
def test_groups_are_read_and_written(text: str, expected: NodeGroup) -> None:
    assert expected == nodes.parse_group(text)
    assert expected == nodes.parse_group(nodes.format_group(expected))


@pytest.mark.parametrize("text", ["", "count=2", "name=a,count=x", "name=a,resource=npu", "name=a,colour=red"])
def test_a_bad_group_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="node group"):
        nodes.parse_group(text)
