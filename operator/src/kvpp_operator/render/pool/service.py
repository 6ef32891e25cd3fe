"""What a MetaService and a Mooncake master have in common: labels, account, Service, hardened pod, how it is merged."""

from __future__ import annotations

from typing import Any

from kvpp_operator import names
from kvpp_operator.catalogue.pools import default_ports
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import MemcachePlan, PoolPlan, PoolService
from kvpp_operator.render.merge import merge_pod

USER = 65532
CONFIG_HASH = f"{names.DOMAIN}/pool-config"
"""Annotation on the service's pods: they are replaced when their own configuration changes, and only then."""


def pool_and_service(plan: Plan) -> tuple[PoolPlan, PoolService]:
    assert plan.pool is not None
    assert plan.pool.service is not None
    return plan.pool, plan.pool.service


def selector(plan: Plan) -> dict[str, str]:
    pool, _ = pool_and_service(plan)
    return {names.DEPLOYMENT: plan.resolved.name, names.POOL: pool.layout.identity}


def metadata(plan: Plan) -> dict[str, Any]:
    pool, service = pool_and_service(plan)
    base = names.base_labels(plan.resolved.name)
    return {
        "name": pool.name,
        "namespace": plan.resolved.namespace,
        "labels": {**base, "app.kubernetes.io/component": service.kind, **selector(plan)},
    }


def account(plan: Plan) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(plan),
        "automountServiceAccountToken": False,
    }


def cluster_service(plan: Plan, more: dict[str, str] | None = None) -> Manifest:
    """Put a fixed address in front of the pod: clients resolve its name once. `more` narrows the selector.

    Its ports are those that engines are told; on a host the pod binds others.
    """
    pool, service = pool_and_service(plan)
    told = default_ports(service.kind) | {"rpc": pool.rpc.port}
    if isinstance(pool.backend, MemcachePlan):
        told["store"] = pool.backend.store.port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(plan),
        "spec": {
            "type": "ClusterIP",
            "selector": {**selector(plan), **(more or {})},
            "ports": [
                {"name": part, "port": told[part], "targetPort": part, "protocol": "TCP"} for part in service.ports
            ],
        },
    }


def pod(
    plan: Plan,
    container: dict[str, Any],
    *,
    token: bool,
    annotations: dict[str, str],
    volumes: list[dict[str, Any]],
) -> dict[str, Any]:
    """Make a pod template that meets Pod Security "restricted"; the user's podTemplate comes on top."""
    _, service = pool_and_service(plan)
    secrets = [{"name": secret.name} for secret in plan.resolved.spec.image_pull_secrets]
    ports = [{"name": part, "containerPort": number, "protocol": "TCP"} for part, number in service.ports.items()]
    template = {
        "metadata": {
            "labels": metadata(plan)["labels"],
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "serviceAccountName": metadata(plan)["name"],
            "automountServiceAccountToken": token,
            "enableServiceLinks": False,
            **({"imagePullSecrets": secrets} if secrets else {}),
            **({"dnsPolicy": "ClusterFirstWithHostNet"} if service.host_network else {}),
            **({"affinity": apart(plan)} if service.replicas > 1 else {}),
            "securityContext": {
                "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "image": service.image,
                "imagePullPolicy": service.pull_policy,
                **container,
                "ports": ports,
                "securityContext": {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }],
            "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes],
        },
    }  # fmt: skip
    return merge_pod(template, [service.pod_template])


def apart(plan: Plan) -> dict[str, Any]:
    """Keep elected services on different nodes where there are several."""
    term = {"labelSelector": {"matchLabels": selector(plan)}, "topologyKey": "kubernetes.io/hostname"}
    wishes = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}


def single(plan: Plan, template: dict[str, Any]) -> Manifest:
    """One pod, the old one gone first: two of them behind one Service would each know half of the blocks."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(plan),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector(plan)},
            "template": template,
        },
    }
