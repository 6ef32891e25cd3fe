"""A script with Kubernetes' official Python client, as users write them, sees what it expects."""

from __future__ import annotations

from typing import Any

import kubernetes
import pytest
import specs
from operator_process import Cluster, Operator

pytestmark = pytest.mark.cluster


@pytest.mark.filterwarnings("default")
def test_create_wait_and_read(user: Cluster, operator: Operator) -> None:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call] # it has no types
        str(user.cluster.kubeconfig), client_configuration=configuration
    )
    with kubernetes.client.ApiClient(configuration) as client:
        objects = kubernetes.client.CustomObjectsApi(client)
        place = ("serving.kvpp.io", "v1alpha1", user.namespace, "kvppdeployments")
        body = {**specs.deployment(specs.UNIFIED), "metadata": {"name": "demo"}}
        objects.create_namespaced_custom_object(*place, body)
        user.wait("demo", "Ready")
        found: Any = objects.get_namespaced_custom_object(*place, "demo")
        assert {c["type"]: c["status"] for c in found["status"]["conditions"]}["Available"] == "True"
        pods = kubernetes.client.CoreV1Api(client).list_namespaced_pod(
            user.namespace, label_selector="serving.kvpp.io/deployment=demo,serving.kvpp.io/head=true"
        )
        assert [container.name for pod in pods.items if pod.spec for container in pod.spec.containers] == ["vllm"]
