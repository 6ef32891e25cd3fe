"""The real LeaderWorkerSet controller on simulated nodes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from kvpp_devcluster.processes import ProgramError

if TYPE_CHECKING:
    from kvpp_devcluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(local_cluster: LocalCluster) -> LocalCluster:
    local_cluster.start_lws()
    return local_cluster


def leader_worker_set(size: int) -> str:
    container = {"name": "vllm", "image": "engine", "resources": {"limits": {"huawei.com/npu": "8"}}}
    template = {
        "size": size,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "workerTemplate": {"spec": {"containers": [container]}},
    }
    return json.dumps(
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "group"},
            "spec": {"replicas": 1, "leaderWorkerTemplate": template},
        }
    )


def ready_pods(cluster: LocalCluster, namespace: str) -> dict[str, Any]:
    items = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {
        item["metadata"]["name"]: item
        for item in items
        if any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", []))
    }


def test_a_group_becomes_ready_and_is_recreated_as_one(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("apply", "--namespace", namespace, "--filename=-", input=leader_worker_set(2))
    cluster.kubectl("wait", "--namespace", namespace, "lws/group", "--for=condition=Available", "--timeout=30s")
    first = ready_pods(cluster, namespace)
    assert first.keys() == {"group-0", "group-0-1"}
    assert len({pod["spec"]["nodeName"] for pod in first.values()}) == 2
    environment = {entry["name"]: entry.get("value") for entry in first["group-0-1"]["spec"]["containers"][0]["env"]}
    assert environment == {
        "LWS_LEADER_ADDRESS": f"group-0.group.{namespace}",
        "LWS_GROUP_SIZE": "2",
        "LWS_WORKER_INDEX": "1",
    }

    cluster.kubectl("annotate", "--namespace", namespace, "pod/group-0-1", "devcluster.kvpp.io/kill=1")
    old = {pod["metadata"]["uid"] for pod in first.values()}
    deadline = time.monotonic() + 30
    while True:
        now = ready_pods(cluster, namespace)
        if len(now) == 2 and not old & {pod["metadata"]["uid"] for pod in now.values()}:
            return
        assert time.monotonic() < deadline, f"the group was not recreated: {list(now)}"
        time.sleep(0.05)


def test_the_webhooks_refuse_nonsense(cluster: LocalCluster, namespace: str) -> None:
    with pytest.raises(ProgramError, match="size must be equal or greater than 1"):
        cluster.kubectl("apply", "--namespace", namespace, "--filename=-", input=leader_worker_set(0))


def test_helm_is_version_4(local_cluster: LocalCluster) -> None:
    assert local_cluster.helm("version", "--short").startswith("v4.")
    assert local_cluster.helm("list", "--all-namespaces", "--output=json") == "[]\n"
