"""The router's objects: what a reviewer of a cluster would look at, and what a real API server says to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from specs import DISAGGREGATED, UNIFIED, deployment, planned

from kvpp_operator import names, versions
from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.manifest import Key, Manifest, apply_order
from kvpp_operator.render.router import RouterPlan, router, router_plan
from kvpp_operator.router.settings import settings_from

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = "example.org/kvpp-router:1"


def plan_of(**changes: Any) -> RouterPlan:
    made = router_plan(planned(deployment(DISAGGREGATED, "glm", **changes)), IMAGE)
    assert made is not None
    return made


def objects(*revisions: str, **changes: Any) -> dict[str, Manifest]:
    made = router(plan_of(**changes), "r1", revisions)
    return {f"{manifest['kind']}/{manifest['metadata']['name']}": manifest for manifest in made}


def containers(**changes: Any) -> dict[str, Manifest]:
    pod = objects(**changes)["Deployment/glm-router"]["spec"]["template"]["spec"]
    return {container["name"]: container for container in pod["containers"]}


def test_what_there_is() -> None:
    assert sorted(objects("r1", "r0")) == [
        "ConfigMap/glm-router",
        "Deployment/glm-router",
        "PodDisruptionBudget/glm-router",
        "Role/glm-router",
        "RoleBinding/glm-router",
        "Service/glm-d-r0",
        "Service/glm-d-r1",
        "Service/glm-p-r0",
        "Service/glm-p-r1",
        "Service/glm-router",
        "ServiceAccount/glm-router",
    ]


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"router": {"type": "Kthena"}}, ["ModelServer", "ModelRoute"]),
        ({"router": {"type": "None"}}, ["Service", "Service"]),
    ],
)
def test_another_router_or_none(changes: dict[str, Any], kinds: list[str]) -> None:
    assert [manifest["kind"] for manifest in router(plan_of(**changes), "r1", ())] == kinds


def test_a_unified_deployment_needs_none() -> None:
    assert router_plan(planned(deployment(UNIFIED)), IMAGE) is None


def test_the_agent_is_told_all_and_understands_it() -> None:
    agent = containers()["agent"]
    assert agent["args"][0] == "router-agent"
    settings = settings_from(agent["args"][1:], {"POD_NAMESPACE": "default", "POD_NAME": "glm-router-x"})
    assert (settings.deployment, settings.service, settings.report) == ("glm", "glm-router", "glm-router")
    assert (settings.address, settings.proxy) == (("0.0.0.0", 8000), "http://127.0.0.1:8100")
    assert settings.shutdown_seconds == 120


def test_the_proxy_is_the_engines_own_and_on_loopback() -> None:
    proxy = containers()["proxy"]
    assert (proxy["command"], proxy["args"]) == (
        ["pd-proxy"],
        [
            "0.30.0rc2",
            "--host",
            "127.0.0.1",
            "--port",
            "8100",
            "--waiting-retry-interval",
            "1",
            "--log-level",
            "WARNING",
        ],
    )
    assert "ports" not in proxy
    assert (
        containers(engine__version="0.28.0rc1", engine__image={"digest": f"sha256:{'0' * 64}"})["proxy"]["args"][0]
        == "0.28.0rc1"
    )


def test_every_release_has_its_proxy_in_the_image(images: Path) -> None:
    listed = [line for line in (images / "router" / "proxy-sources.txt").read_text().splitlines() if line[:1] == "v"]
    fetched = [line.partition("==")[2].partition(" ")[0] for line in listed]
    assert fetched == [release.name for release in versions.RELEASES if release != versions.LATEST]


def test_the_key_is_a_reference_in_both_containers() -> None:
    key = {"secretKeyRef": {"name": "keys", "key": "api"}}
    told = containers(apiKeySecretRef={"name": "keys", "key": "api"})
    assert {"name": "VLLM_API_KEY", "valueFrom": key} in told["agent"]["env"]
    assert told["proxy"]["env"] == [{"name": "OPENAI_API_KEY", "valueFrom": key}]
    assert "env" not in containers()["proxy"]


def test_only_the_agent_has_a_token() -> None:
    pod = objects()["Deployment/glm-router"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    mounts = {
        container["name"]: [mount["name"] for mount in container["volumeMounts"]] for container in pod["containers"]
    }
    assert mounts == {"agent": ["api-access"], "proxy": ["tmp"]}


def test_the_revision_is_on_the_service_and_a_switch_changes_nothing_else() -> None:
    planned_router = plan_of()
    before, after = (router(planned_router, serving, ("r1", "r2")) for serving in ("r1", "r2"))
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    ((old, new),) = changed
    assert old["kind"] == "Service"
    assert (old["metadata"]["labels"][names.REVISION], new["metadata"]["labels"][names.REVISION]) == ("r1", "r2")


def test_members_are_heads_of_one_role_and_revision() -> None:
    made = objects("r1")["Service/glm-p-r1"]
    assert made["spec"]["selector"] == {
        names.DEPLOYMENT: "glm",
        names.ROLE: "prefill",
        names.REVISION: "r1",
        names.HEAD: "true",
    }
    assert made["metadata"]["labels"].items() >= {names.ROLE: "prefill", names.REVISION: "r1"}.items()
    assert made["spec"]["clusterIP"] == "None"


def test_the_users_words() -> None:
    told = objects(
        router={
            "replicas": 3,
            "service": {"type": "LoadBalancer", "annotations": {"lb/kind": "internal"}},
            "podTemplate": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {"containers": [{"name": "proxy", "resources": {"limits": {"memory": "1Gi"}}}], "nodeSelector": {"x": "y"}},
            },
        }
    )  # fmt: skip
    workload = told["Deployment/glm-router"]["spec"]
    assert workload["replicas"] == 3
    assert told["Service/glm-router"]["spec"]["type"] == "LoadBalancer"
    assert told["Service/glm-router"]["metadata"]["annotations"] == {"lb/kind": "internal"}
    pod = workload["template"]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["spec"]["nodeSelector"] == {"x": "y"}
    assert pod["spec"]["containers"][1]["resources"] == {
        "requests": {"cpu": "200m", "memory": "256Mi"},
        "limits": {"memory": "1Gi"},
    }


def test_for_kthena() -> None:
    server, route = router(plan_of(router={"type": "Kthena"}), "r1", ())
    assert server["spec"] == {
        "model": "GLM-5.2",
        "inferenceEngine": "vLLM",
        "workloadPort": {"port": 8000, "protocol": "http"},
        "workloadSelector": {
            "matchLabels": {names.DEPLOYMENT: "glm", names.HEAD: "true"},
            "pdGroup": {
                "groupKey": names.REVISION,
                "prefillLabels": {names.ROLE: "prefill"},
                "decodeLabels": {names.ROLE: "decode"},
            },
        },
        "kvConnector": {"type": "mooncake"},
    }
    assert route["spec"] == {
        "modelName": "GLM-5.2",
        "rules": [{"name": "default", "targetModels": [{"modelServerName": "glm-router"}]}],
    }


@pytest.mark.parametrize("name", ["a", "0numbers-first", "x" * 63, "ends-with-" + "y" * 20])
def test_names_fit(name: str) -> None:
    made = router_plan(planned(deployment(DISAGGREGATED, name)), IMAGE)
    assert made is not None
    for manifest in router(made, "0123456789", ()):
        assert len(manifest["metadata"]["name"]) <= 63
        assert manifest["metadata"]["name"][0].isalpha()


@pytest.mark.cluster
async def test_a_real_server_takes_them_under_the_restricted_standard(local_cluster: Any, namespace: str) -> None:
    access = Access(lambda: load(str(local_cluster.kubeconfig)))
    async with Cluster(access, attempts=1) as cluster:
        label = {"pod-security.kubernetes.io/enforce": "restricted"}
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": label}})
        made = router(plan_of(), "r1", ())
        for manifest in sorted(made, key=apply_order):
            placed = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
            if placed["kind"] == "RoleBinding":
                placed["subjects"] = [{**placed["subjects"][0], "namespace": namespace}]
            await cluster.apply(placed)
        template = made[-1]["spec"]["template"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "glm-router-x", "namespace": namespace},
            "spec": template["spec"],
        }
        # Whether a pod may be, admission says only to a pod; a Deployment is let in with a warning.
        await cluster.apply(pod, dry_run=True)
        live = await cluster.get(Key("apps/v1", "Deployment", namespace, "glm-router"))
        assert live is not None
