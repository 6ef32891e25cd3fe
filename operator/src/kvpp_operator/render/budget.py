"""How many engines of a role a drain of nodes may take at a time: one PodDisruptionBudget for each role."""

from __future__ import annotations

from kvpp_operator import names
from kvpp_operator.api.v1alpha1 import RoleName
from kvpp_operator.manifest import Manifest

PODS_AT_A_TIME = 1
"""Of an engine over several nodes any pod takes the others with it, so one pod is one engine."""


def disruption_budget(deployment: str, namespace: str, role: RoleName) -> Manifest:
    """`maxUnavailable`, so that a drain goes on where there is only one engine; pods that are not ready hold no drain up."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": names.part(deployment, role),
            "namespace": namespace,
            "labels": {**names.base_labels(deployment), "app.kubernetes.io/component": role, names.ROLE: role},
        },
        "spec": {
            "maxUnavailable": PODS_AT_A_TIME,
            "selector": {"matchLabels": names.role_selector(deployment, role)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
