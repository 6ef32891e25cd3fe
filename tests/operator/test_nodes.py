"""Engines over several nodes, on the real LeaderWorkerSet controller with its webhooks and the real scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import specs
from operator_process import Cluster, Operator, eventually

from kvpp_devcluster.cluster import LocalCluster
from kvpp_operator import names

pytestmark = pytest.mark.cluster

SECONDS = 120.0
TWO_NODES: dict[str, Any] = {"tensor": 8, "pipeline": 2, "pipelineLayers": [38, 40], "expert": True}
EXAMPLE = specs.ROOT / "examples" / "3-two-node-prefill.yaml"


@pytest.fixture(autouse=True)
def _lws(local_cluster: LocalCluster) -> None:
    local_cluster.start_lws()


def two_nodes(name: str = "demo", **changes: Any) -> dict[str, Any]:
    """One engine over two nodes and nothing else."""
    return specs.deployment(specs.UNIFIED, name, unified__parallelism=TWO_NODES, **changes)


def pods(user: Cluster, role: str = "unified") -> dict[str, dict[str, Any]]:
    """Pods of a role by their rank: head or worker."""
    found = [pod for pod in user.get("pods")["items"] if pod["metadata"]["labels"].get(names.ROLE) == role]
    return {"head" if pod["metadata"]["labels"][names.HEAD] == "true" else "worker": pod for pod in found}


def uids(user: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in user.get("pods")["items"]}


def nodes(user: Cluster) -> set[str]:
    return {pod["spec"].get("nodeName") for pod in user.get("pods")["items"]}


def reason(user: Cluster, name: str = "demo") -> str:
    engines = user.deployment(name).get("status", {}).get("engines") or [{"reason": ""}]
    return str(engines[0]["reason"])


def says(user: Cluster, *words: str) -> str:
    """The engine's reason, once it has all these words."""
    return eventually(
        lambda: found if all(word in (found := reason(user)) for word in words) else "",
        seconds=SECONDS,
        what=f"{words}",
    )


def anew(user: Cluster, old: set[str], size: int = 2) -> bool:
    """Whether as many pods as an engine has are new and stay."""
    staying = [pod for pod in user.get("pods")["items"] if "deletionTimestamp" not in pod["metadata"]]
    return len(staying) == size and not {pod["metadata"]["uid"] for pod in staying} & old


def test_sample_three_becomes_ready(user: Cluster, operator: Operator) -> None:
    [body] = specs.read(EXAMPLE)
    user.apply(body)
    user.wait("glm-5-2-pp", "Ready", seconds=SECONDS)
    prefill = pods(user, "prefill")
    assert prefill["head"]["spec"]["nodeName"] != prefill["worker"]["spec"]["nodeName"]
    for rank, headless in (("head", False), ("worker", True)):
        [container] = prefill[rank]["spec"]["containers"]
        told = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert told["VLLM_PP_LAYER_PARTITION"] == "38,40"
        assert told["LWS_WORKER_INDEX"] == ("1" if headless else "0")
        assert ("--headless" in container["args"]) is headless
        assert container["resources"]["limits"] == {"huawei.com/npu": "8"}
    assert "VLLM_PP_LAYER_PARTITION" not in str(pods(user, "decode")["head"]["spec"])
    eventually(lambda: budget(user, "glm-5-2-pp-prefill") == (2, 1), seconds=SECONDS)
    eventually(lambda: budget(user, "glm-5-2-pp-decode") == (1, 1), seconds=SECONDS)


def budget(user: Cluster, name: str) -> tuple[int, int]:
    """Pods that a disruption budget counts on, and how many of them may be taken now."""
    status = user.get("poddisruptionbudget", name).get("status", {})
    return status.get("expectedPods", 0), status.get("disruptionsAllowed", 0)


def test_services_reach_heads_and_ranks_find_their_head_before_it_is_ready(user: Cluster, operator: Operator) -> None:
    user.apply(
        two_nodes(unified__podTemplate={"metadata": {"annotations": {"devcluster.kvpp.io/never-ready": "true"}}})
    )
    says(user, "Loading")
    head = eventually(lambda: pods(user).get("head", {}).get("status", {}).get("podIP"), seconds=SECONDS)
    worker = eventually(lambda: pods(user).get("worker", {}).get("status", {}).get("podIP"), seconds=SECONDS)
    [group] = user.get("leaderworkersets")["items"]
    rendezvous = user.get("service", group["metadata"]["name"])
    assert (rendezvous["spec"]["clusterIP"], rendezvous["spec"]["publishNotReadyAddresses"]) == ("None", True)
    told = {v["name"]: v.get("value") for v in pods(user)["worker"]["spec"]["containers"][0]["env"]}
    assert (
        told["LWS_LEADER_ADDRESS"]
        == f"{pods(user)['head']['metadata']['name']}.{rendezvous['metadata']['name']}.{user.namespace}"
    )
    eventually(lambda: addresses(user, rendezvous["metadata"]["name"]) == {head: True, worker: True}, seconds=SECONDS)
    eventually(lambda: addresses(user, "demo-unified") == {head: False}, seconds=SECONDS)


def addresses(user: Cluster, service: str) -> dict[str, bool]:
    """Address → whether it is ready, as the EndpointSlices of a Service say; those that publish all call all ready."""
    slices = user.get("endpointslices", "--selector", f"kubernetes.io/service-name={service}")["items"]
    return {e["addresses"][0]: e["conditions"]["ready"] for s in slices for e in s.get("endpoints") or ()}


def test_killing_one_rank_recreates_the_group(user: Cluster, operator: Operator) -> None:
    user.apply(two_nodes())
    user.wait("demo", "Ready", seconds=SECONDS)
    old = uids(user)
    user.kubectl("annotate", "pod", pods(user)["worker"]["metadata"]["name"], "devcluster.kvpp.io/kill=1")
    eventually(lambda: anew(user, old), seconds=SECONDS)
    user.wait("demo", "Ready", seconds=SECONDS)


def test_what_a_rank_died_of_is_known_while_its_group_is_made_anew(user: Cluster, operator: Operator) -> None:
    """LeaderWorkerSet takes the dead pod away at once, and its words with it."""
    dying = {
        "devcluster.kvpp.io/run-for": "1",
        "devcluster.kvpp.io/exit-code": "1",
        "devcluster.kvpp.io/termination-message": "INFO loading\nRuntimeError: EI0006: Getting socket times out.\nbye",
    }
    user.apply(two_nodes(unified__podTemplate={"worker": {"metadata": {"annotations": dying}}}))
    says(user, "last failure: Error: exit code 1. RuntimeError: EI0006", "[HCCL: ", "engine-codes.md#hccl-timeout]")


@contextlib.contextmanager
def lost(cluster: LocalCluster, node: str) -> Iterator[None]:
    cluster.lose_node(node)
    yield
    cluster.bring_back_node(node)


@pytest.mark.parametrize("rank", ["head", "worker", "only"])
def test_an_engine_of_a_lost_node_comes_back_elsewhere(
    user: Cluster, operator: Operator, local_cluster: LocalCluster, rank: str
) -> None:
    soon = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for what in ("unreachable", "not-ready")
    ]
    body = two_nodes() if rank != "only" else specs.deployment(specs.UNIFIED)
    body["spec"]["unified"] |= {"shutdownTimeout": "0s", "podTemplate": {"spec": {"tolerations": soon}}}
    user.apply(body)
    user.wait("demo", "Ready", seconds=SECONDS)
    old, node = uids(user), pods(user)["head" if rank == "only" else rank]["spec"]["nodeName"]
    with lost(local_cluster, node):
        if rank != "only":  # a Deployment does not wait for the old pod, so there is hardly anything to see
            says(user, "Evicted: Taint manager", "engine-codes.md#node-lost")
        eventually(lambda: anew(user, old, 1 if rank == "only" else 2), seconds=180)
        user.wait("demo", "Ready", seconds=SECONDS)
        staying = [pod for pod in user.get("pods")["items"] if "deletionTimestamp" not in pod["metadata"]]
        assert node not in {pod["spec"]["nodeName"] for pod in staying}


def test_too_few_npus_are_told_and_a_new_node_heals(
    user: Cluster, operator: Operator, local_cluster: LocalCluster
) -> None:
    resource, name = f"example.com/npu-{user.namespace}", f"more-{user.namespace}"
    local_cluster.add_node(f"{name}-0", resources={resource: "8"})
    try:
        user.apply(two_nodes(accelerator__resourceName=resource))
        says(user, "Unschedulable", f"Insufficient {resource}")
        waiting = user.condition("demo", "Ready")
        assert (waiting["status"], waiting["reason"]) == ("False", "EnginesNotReady")
        assert "Unschedulable" in waiting["message"]
        local_cluster.add_node(f"{name}-1", resources={resource: "8"})
        user.wait("demo", "Ready", seconds=SECONDS)
        assert nodes(user) == {f"{name}-0", f"{name}-1"}
    finally:
        for node in user.get("nodes")["items"]:
            if node["metadata"]["name"].startswith(name):
                local_cluster.delete_node(node["metadata"]["name"])


@pytest.mark.parametrize("length", [1, 40, 52, 63])
def test_names_of_every_length_work_on_several_nodes(user: Cluster, operator: Operator, length: int) -> None:
    name = "m" * length
    user.apply(two_nodes(name))
    user.wait(name, "Ready", seconds=SECONDS)


def test_two_names_equal_in_their_first_fifty_characters_stand_beside_each_other(
    user: Cluster, operator: Operator
) -> None:
    pair = ("e" * 50 + "-one", "e" * 50 + "-two")
    for name in pair:
        user.apply(two_nodes(name))
    for name in pair:
        user.wait(name, "Ready", seconds=SECONDS)
    owners = {
        group["metadata"]["name"]: group["metadata"]["ownerReferences"][0]["name"]
        for group in user.get("leaderworkersets")["items"]
    }
    assert sorted(owners.values()) == sorted(pair)
    assert all(len(name) <= names.ENGINE_NAME_LIMIT for name in owners)


def test_deleting_leaves_nothing(user: Cluster, operator: Operator) -> None:
    user.apply(two_nodes())
    user.wait("demo", "Ready", seconds=SECONDS)
    user.kubectl("delete", "kvpp", "demo")
    eventually(lambda: not user.get("leaderworkersets,statefulsets,services,pods")["items"], seconds=SECONDS)


def test_an_edit_by_hand_is_put_back(user: Cluster, operator: Operator) -> None:
    user.apply(two_nodes())
    user.wait("demo", "Ready", seconds=SECONDS)
    [group] = user.get("leaderworkersets")["items"]
    name = group["metadata"]["name"]
    user.kubectl("patch", "leaderworkerset", name, "--type=merge", "-p", '{"spec":{"replicas":0}}')
    eventually(lambda: user.get("leaderworkerset", name)["spec"]["replicas"] == 1, seconds=SECONDS)
    user.wait("demo", "Ready", seconds=SECONDS)


def test_two_engines_over_nodes_on_the_host_network(user: Cluster, operator: Operator) -> None:
    """Every port of a head and of a rank is its own, on whatever hosts they meet."""
    host = {"hostNetwork": True, "interface": "eth0"}
    user.apply(two_nodes(networking=host, unified__replicas=2))
    user.wait("demo", "Ready", seconds=SECONDS)
    ports = [
        (pod["metadata"]["labels"][names.ENGINE], port["hostPort"])
        for pod in user.get("pods")["items"]
        for port in pod["spec"]["containers"][0].get("ports", [])
    ]
    assert len({number for _, number in ports}) == len(ports)
    assert {engine for engine, _ in ports} == {"0", "1"}
    probes = {
        (pod["metadata"]["labels"][names.ENGINE], pod["spec"]["containers"][0]["livenessProbe"]["exec"]["command"][-1])
        for pod in user.get("pods")["items"]
        if pod["metadata"]["labels"][names.HEAD] == "false"
    }
    assert len({port for _, port in probes}) == 2
