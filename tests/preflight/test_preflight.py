"""`kvpp preflight` on a real API server with simulated nodes, which answer what the pods' annotations say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import specs
import yaml
from click.testing import CliRunner, Result
from operator_process import Cluster

from kvpp_devcluster.cluster import LocalCluster
from kvpp_operator.cli.app import app

pytestmark = pytest.mark.cluster

GOOD = [{"check": "vllm", "state": "ok", "found": "0.30.0", "fix": ""}]
BAD = [{"check": "hccn.conf", "state": "error", "found": "missing", "fix": "hccn_tool"}, *GOOD]


@pytest.fixture
def user(local_cluster: LocalCluster, namespace: str) -> Cluster:
    return Cluster(local_cluster, namespace)


def preflight(user: Cluster, *arguments: str, said: Any = GOOD, code: int = 0, **changes: Any) -> Result:
    annotations = {
        "devcluster.kvpp.io/termination-message": json.dumps(said),
        "devcluster.kvpp.io/exit-code": str(code),
    }
    template = {"metadata": {"annotations": annotations}}
    body = specs.deployment(specs.UNIFIED, engine__podTemplate=template, **changes)
    body["metadata"] = {"name": "demo", "namespace": user.namespace}
    environment = {"KUBECONFIG": str(user.cluster.kubeconfig)}
    return CliRunner(env=environment).invoke(
        app, ["preflight", *arguments, "-"], input=yaml.safe_dump(body), catch_exceptions=False
    )


def left(user: Cluster) -> list[str]:
    found = user.get("jobs,pods,configmaps", "--selector", "serving.kvpp.io/preflight")["items"]
    return [f"{one['kind']} {one['metadata']['name']}" for one in found if "deletionTimestamp" not in one["metadata"]]


def test_every_node_is_asked_and_nothing_is_left(user: Cluster) -> None:
    result = preflight(user, "-o", "json")
    assert result.exit_code == 0, result.output
    nodes = {
        one["metadata"]["name"]
        for one in user.get("nodes")["items"]
        if "huawei.com/npu" in one["status"]["allocatable"]
    }
    answers = json.loads(result.stdout)["nodes"]
    assert {answer["node"] for answer in answers} == nodes
    assert answers[0] == {
        "node": answers[0]["node"], "namespace": user.namespace, "deployment": "demo", "role": "unified", "ok": True, "results": GOOD,
    }  # fmt: skip
    assert [one for one in left(user) if not one.startswith("Pod ")] == []


def test_what_is_missing_stands_in_one_table(user: Cluster) -> None:
    node = next(
        one["metadata"]["name"]
        for one in user.get("nodes")["items"]
        if "huawei.com/npu" in one["status"]["allocatable"]
    )
    result = preflight(user, "--node", node, said=BAD, code=1)
    assert result.exit_code == 1
    head, row = result.stdout.splitlines()
    assert head.split() == ["NODE", "DEPLOYMENT", "ROLE", "STATE", "WHAT", "FIX"]
    assert row.split() == [node, "demo", "unified", "error", "hccn.conf:", "missing", "hccn_tool"]


def test_a_pod_that_does_not_run_is_told_in_the_schedulers_words(user: Cluster) -> None:
    node = user.get("nodes")["items"][0]["metadata"]["name"]
    result = preflight(user, "--node", node, "--npus", "64", "--timeout", "10", "-o", "json")
    [answer] = json.loads(result.stdout)["nodes"]
    assert (result.exit_code, answer["ok"]) == (1, False)
    assert answer["results"][0]["found"].startswith(("Unschedulable: ", "devices"))


def test_nowhere_to_look_is_2(user: Cluster) -> None:
    assert preflight(user, accelerator__resourceName="example.com/none").exit_code == 2
    assert preflight(user, unified__replicas=0).exit_code == 2
    unknown = preflight(user, "--node", "nowhere")
    assert (unknown.exit_code, unknown.stderr) == (2, "kvpp: there is no node nowhere\n")
