"""Who may talk to a pool's service: it asks nobody who they are, and its HTTP side can remove blocks."""

from __future__ import annotations

from typing import Any

from kvpp_operator import names
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.pool_layout import pooled_role
from kvpp_operator.render.pool.service import metadata, pool_and_service, selector

HTTP_PARTS = ("http", "metrics")


def network_policy(plan: Plan) -> list[Manifest]:
    """Engines that join reach it, pods of the namespace read its metrics; another policy may let more in.

    None where one side is on the host network: there a policy sees nodes, not pods.
    """
    _, service = pool_and_service(plan)
    if service.host_network or plan.resolved.spec.networking.host_network:
        return []
    engines = {"podSelector": {"matchLabels": names.role_selector(plan.resolved.name, pooled_role(plan.resolved).name)}}
    own = [part for part in service.ports if part not in HTTP_PARTS]
    http = [part for part in service.ports if part in HTTP_PARTS]
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(plan),
            "spec": {
                "podSelector": {"matchLabels": selector(plan)},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [engines], "ports": ports(own)},
                    {"from": [{"podSelector": {}}], "ports": ports(http)},
                ],
            },
        }
    ]


def ports(parts: list[str]) -> list[dict[str, Any]]:
    """By name, so that ports on the host network need no other text."""
    return [{"port": part, "protocol": "TCP"} for part in parts]
