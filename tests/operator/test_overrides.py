"""podTemplate on a real API server: odd names, clashes and notations settle; what the server refuses changes nothing."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
import specs
from operator_process import Cluster, Operator, eventually

from kvpp_devcluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

SECONDS = 120.0


def vllm(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "vllm", **fields}]}}


TORTURE: dict[str, Any] = {
    "metadata": {
        "labels": {"example.com/team": "a", "kueue.x-k8s.io/queue-name": "npus"},
        "annotations": {"example.com/note": '{"a": "$(POD_IP) \\u0000"}', "sizeLimit": "1024Mi"},
    },
    "spec": {
        "containers": [
            {
                "name": "vllm",
                "env": [
                    {"name": "HCCL_OP_EXPANSION_MODE", "value": "HOST"},
                    {"name": "OMP_PROC_BIND", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "a.b-c_d", "value": "$(POD_IP)$$(X)"},
                    {"name": "EMPTY", "value": ""},
                    {"name": "EMPTY", "value": "given twice"},
                    {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1000m"}}},
                ],
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/dev/shm/"},
                    {"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"},
                    {"name": "claim", "mountPath": "/claim"},
                ],
                "ports": [{"containerPort": 8000}, {"containerPort": 9000, "protocol": "UDP", "name": "more"}],
                "resources": {
                    "requests": {"cpu": "1000m", "memory": "1.5Gi", "ephemeral-storage": "1e9"},
                    "limits": {"memory": "2048Mi", "cpu": "2.50"},
                },
                "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 7},
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
                "securityContext": {"seccompProfile": {"type": "Unconfined"}},
            },
            {"name": "log", "image": "log:1", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
             "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}}},
        ],
        "initContainers": [{"name": "prepare", "image": "prepare:1", "command": ["true"]}],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1.5Gi"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1000M"}},
            {"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1024Mi"}}}}}},
        ],
        "tolerations": [
            {"key": "npu", "operator": "Exists"},
            {"key": "npu", "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"},
            {"key": "npu", "operator": "Exists"},
        ],
        "topologySpreadConstraints": [{
            "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1,
            "labelSelector": {"matchLabels": {"serving.kvpp.io/role": "unified"}}}],
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["pool"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
        "shareProcessNamespace": False,
    },
    "worker": {"metadata": {"labels": {"example.com/rank": "worker"}}, "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}},
}  # fmt: skip
del TORTURE["spec"]["volumes"][2], TORTURE["spec"]["containers"][0]["volumeMounts"][2]  # needs a claim that is bound


def other_notation(template: dict[str, Any]) -> dict[str, Any]:
    """The same wish: other quantities, other order of maps, other text."""
    said = copy.deepcopy(template)
    engine, log = said["spec"]["containers"]
    engine["resources"] = {
        "limits": {"cpu": "2500m", "memory": "2Gi"},
        "requests": {"memory": "1536Mi", "ephemeral-storage": "1000M", "cpu": 1},
    }
    engine["env"][-1]["valueFrom"]["resourceFieldRef"]["divisor"] = "1"
    log["resources"] = {"requests": {"memory": "1Gi", "cpu": "500m"}}
    said["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "1536Mi"
    return {key: dict(reversed(value.items())) for key, value in reversed(said.items())}


def versions(user: Cluster, kinds: str) -> dict[tuple[str, str], str]:
    """Everything that a write would move."""
    items = user.get(f"kvpp,controllerrevisions,services,pdb,serviceaccounts,{kinds}")["items"]
    return {(i["kind"], i["metadata"]["name"]): i["metadata"]["resourceVersion"] for i in items}


def settled(user: Cluster, kinds: str) -> dict[tuple[str, str], str]:
    """Once two looks, a second apart, see the same."""

    def look() -> dict[tuple[str, str], str]:
        before = versions(user, kinds)
        time.sleep(1)
        return before if before == versions(user, kinds) else {}

    return eventually(look, seconds=SECONDS)


@pytest.mark.parametrize("pipeline", [1, 2], ids=["one node", "two nodes"])
def test_torture_settles_without_a_write_and_formatting_restarts_nothing(
    user: Cluster, operator: Operator, local_cluster: LocalCluster, pipeline: int
) -> None:
    local_cluster.start_lws()
    kinds = "deployments" if pipeline == 1 else "leaderworkersets"
    parallelism = {"tensor": 8, "pipeline": pipeline, "expert": True}

    def body(template: dict[str, Any]) -> dict[str, Any]:
        return specs.deployment(specs.UNIFIED, unified__parallelism=parallelism, unified__podTemplate=template)

    user.apply(body(TORTURE))
    user.wait("demo", "Ready", seconds=SECONDS)
    before = settled(user, kinds)
    assert operator.stop() == 0
    operator.start()
    time.sleep(1)
    assert versions(user, kinds) == before, "a restart of the operator wrote something"

    pods = {pod["metadata"]["uid"] for pod in user.get("pods")["items"]}
    user.apply(body(other_notation(TORTURE)))
    user.wait("demo", "Ready", seconds=SECONDS)
    after = settled(user, kinds)
    assert {key: version for key, version in after.items() if before[key] != version}.keys() == {
        ("KVPPDeployment", "demo")
    }
    assert {pod["metadata"]["uid"] for pod in user.get("pods")["items"]} == pods


def test_the_users_values_stand_in_the_pod(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.UNIFIED, unified__podTemplate=TORTURE))
    user.wait("demo", "Ready", seconds=SECONDS)
    [pod] = user.get("pods")["items"]
    engine, log = pod["spec"]["containers"]
    env = {variable["name"]: variable.get("value") for variable in engine["env"]}
    assert len(env) == len(engine["env"])
    assert (env["HCCL_OP_EXPANSION_MODE"], env["EMPTY"], env["a.b-c_d"]) == ("HOST", "given twice", "$(POD_IP)$$(X)")
    assert log["env"] == [{"name": "A", "value": "2"}]
    assert engine["resources"]["requests"]["memory"] == "1536Mi"
    mounted = {mount["mountPath"].rstrip("/"): mount["name"] for mount in engine["volumeMounts"]}
    assert (mounted["/dev/shm"], mounted["/scratch"]) == ("scratch", "scratch")
    assert [port["containerPort"] for port in engine["ports"]] == [8000, 9000]
    assert engine["readinessProbe"].keys() & {"httpGet", "tcpSocket"} == {"tcpSocket"}
    assert pod["spec"]["affinity"] == {"podAntiAffinity": {}}
    [workload] = user.get("deployments")["items"]
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "npus"
    assert "kueue.x-k8s.io/queue-name" not in workload["spec"]["template"]["metadata"]["labels"]


REFUSED = [
    ("two mounts at one place", vllm(volumeMounts=[{"name": "shm", "mountPath": "/a"}, {"name": "nothing", "mountPath": "/b"}]), "nothing"),
    ("a field that does not exist and is like none", {"spec": {"zigzag": []}}, "zigzag"),
    ("a word that is no choice", {"spec": {"dnsPolicy": "Sometimes"}}, "dnsPolicy"),
    ("a limit below its request", vllm(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), "limit"),
    ("a port's name given twice", vllm(ports=[{"containerPort": 9, "name": "twice"}, {"containerPort": 10, "name": "twice"}]), "twice"),
    ("a probe of a port that has no name", vllm(livenessProbe={"httpGet": {"path": "/", "port": "no_such"}}), "no_such"),
]  # fmt: skip

KNOWN_BEFORE = [
    ("a field that is nearly another", {"spec": {"tolleration": []}}, "POD011"),
    ("a wrong type", vllm(env=[{"name": "A", "value": 1}]), "POD010"),
    ("a quantity that is none", vllm(resources={"requests": {"cpu": "many"}}), "POD010"),
]


@pytest.mark.parametrize("pipeline", [1, 2], ids=["one node", "two nodes"])
def test_what_the_server_refuses_is_told_and_the_old_engines_serve_on(
    user: Cluster, operator: Operator, local_cluster: LocalCluster, pipeline: int
) -> None:
    local_cluster.start_lws()
    kinds = "deployments" if pipeline == 1 else "leaderworkersets"
    parallelism = {"tensor": 8, "pipeline": pipeline, "expert": True}

    def body(template: dict[str, Any]) -> dict[str, Any]:
        return specs.deployment(specs.UNIFIED, unified__parallelism=parallelism, unified__podTemplate=template)

    user.apply(body({}))
    user.wait("demo", "Ready", seconds=SECONDS)
    revision = user.deployment("demo")["status"]["revision"]
    before = settled(user, kinds)
    before.pop(("KVPPDeployment", "demo"))
    for what, template, word in [*REFUSED, *KNOWN_BEFORE]:
        user.apply(body(template))
        if (what, template, word) in REFUSED:
            told, reason = user.wait("demo", "Applied", "False", seconds=SECONDS), "Refused"
        else:
            told, reason = user.wait("demo", "Accepted", "False", seconds=SECONDS), "Invalid"
        assert (told["reason"], word in told["message"]) == (reason, True), f"{what}: {told['message']}"
        status = user.deployment("demo")["status"]
        assert status["revision"] == revision, what
        assert [(engine["ready"], engine["revision"]) for engine in status["engines"]] == [(True, revision)], what
        assert user.condition("demo", "Available")["status"] == "True", what
        now = versions(user, kinds)
        now.pop(("KVPPDeployment", "demo"))
        assert now == before, f"{what}: something was applied"
    user.apply(body(vllm(env=[{"name": "A", "value": "1"}])))
    user.wait("demo", "Ready", seconds=SECONDS)
    assert user.deployment("demo")["status"]["revision"] != revision
