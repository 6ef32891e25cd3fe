"""How a role's engines are reached: one Service for the heads of each role."""

from __future__ import annotations

from kvpp_operator import names
from kvpp_operator.api.v1alpha1 import RoleName
from kvpp_operator.manifest import Manifest

API_PORT = 8000


def role_service(deployment: str, namespace: str, role: RoleName) -> Manifest:
    """Selects API heads only: a headless rank serves no HTTP."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.part(deployment, role),
            "namespace": namespace,
            "labels": {**names.base_labels(deployment), "app.kubernetes.io/component": role, names.ROLE: role},
        },
        "spec": {
            "type": "ClusterIP",
            "selector": {**names.role_selector(deployment, role), names.HEAD: "true"},
            "ports": [{"name": "http", "port": API_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }
