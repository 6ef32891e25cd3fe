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
    kubernetes.config.load_kube_config(str(user.cluster.kubeconfig), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        objects = kubernetes.client.CustomObjectsApi(client)
        place = {"group": "serving.kvpp.io", "version": "v1alpha1", "namespace": user.namespace, "plural": "kvppdeployments"}
        body = {**specs.deployment(specs.UNIFIED), "metadata": {"name": "demo"}}
        objects.create_namespaced_custom_object(**place, body=body)
        user.wait("demo", "Ready")
        found: dict[str, Any] = objects.get_namespaced_custom_object(**place, name="demo")
        assert {c["type"]: c["status"] for c in found["status"]["conditions"]}["Available"] == "True"
        pods = kubernetes.client.CoreV1Api(client).list_namespaced_pod(
            user.namespace, label_selector="serving.kvpp.io/deployment=demo,serving.kvpp.io/head=true"
        )
        assert [pod.spec.containers[0].name for pod in pods.items] == ["vllm"]
