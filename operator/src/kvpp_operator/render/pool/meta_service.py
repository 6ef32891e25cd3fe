"""memcache's MetaService: one pod, or several that elect a leader through a Lease (launch facts 4.2)."""

from __future__ import annotations

from typing import Any

from kvpp_operator import names
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import MemcachePlan
from kvpp_operator.render.pool.config import META, MOUNT, is_on, meta_conf, script
from kvpp_operator.render.pool.service import (
    CONFIG_HASH,
    account,
    cluster_service,
    metadata,
    pod,
    pool_and_service,
    selector,
    single,
)

CONTAINER = "meta-service"
LEADER = {"role": "master"}
"""Label that the leader puts on its own pod; no template of ours carries it, so nobody fights over it."""

LEASE_SECONDS = 10
"""A leader that says nothing for so long is replaced (the package's own default)."""


def meta_service_objects(plan: Plan) -> list[Manifest]:
    _, service = pool_and_service(plan)
    if service.replicas == 1:
        return [account(plan), config(plan), cluster_service(plan), single(plan, pod_template(plan))]
    return [
        account(plan), role(plan), role_binding(plan), lease(plan), config(plan), disruption_budget(plan),
        cluster_service(plan, LEADER), stateful_set(plan),
    ]  # fmt: skip


def config(plan: Plan) -> Manifest:
    pool, _ = pool_and_service(plan)
    programs = {name: script(name) for name in ("meta_service.py", "health.py", "openssl.py")}
    data = {META: meta_conf(plan.resolved.name, pool), **programs}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(plan), "data": data}


def pod_template(plan: Plan) -> dict[str, Any]:
    pool, service = pool_and_service(plan)
    text = meta_conf(plan.resolved.name, pool)
    elects = service.replicas > 1
    container = {
        "name": CONTAINER,
        # A command: this is no CANN image whose entrypoint has work to do, and any image with the package will do.
        "command": ["python3", f"{MOUNT}/meta_service.py", f"{MOUNT}/{META}"],
        "env": environment(plan),
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
        "volumeMounts": [
            {"name": "config", "mountPath": MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a mount point
        ],
        **probes(plan),
    }
    volumes = [{"name": "config", "configMap": {"name": metadata(plan)["name"]}}]
    return pod(plan, container, token=elects, annotations={CONFIG_HASH: names.digest(text)}, volumes=volumes)


def environment(plan: Plan) -> list[dict[str, Any]]:
    """Names that the package reads for its election, and the address it is to bind."""
    _, service = pool_and_service(plan)
    return [
        {"name": "META_POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {"name": "META_POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        {"name": "META_NAMESPACE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}},
        {"name": "META_LEASE_NAME", "value": metadata(plan)["name"]},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        # Folders of the pool image; in another image they are not there, and the package is found as it is.
        {"name": "PYTHONPATH", "value": f"/opt/memcache-{service.version}:/opt/kubernetes"},
    ]


def probes(plan: Plan) -> dict[str, Any]:
    """By a small program instead of httpGet, for which the service's HTTP is broken (files/health.py says how)."""
    pool, service = pool_and_service(plan)
    assert isinstance(pool.backend, MemcachePlan)
    port = service.ports["http"]
    if is_on(pool.backend.meta_config.get("ock.mmc.metrics.tls.enable", "")):
        reached = {"tcpSocket": {"port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}
        fails = {"readinessProbe": 2, "livenessProbe": 6}
        return {probe: {**reached, "failureThreshold": failures} for probe, failures in fails.items()}

    def asks(question: str) -> dict[str, Any]:
        return {"exec": {"command": ["python3", f"{MOUNT}/health.py", str(port), question]}, "timeoutSeconds": 5}

    ready = "elected" if service.replicas > 1 else "ready"
    return {
        "startupProbe": {**asks("live"), "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**asks(ready), "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**asks("live"), "periodSeconds": 10, "failureThreshold": 6},
    }


def stateful_set(plan: Plan) -> Manifest:
    """Several pods whose names are known beforehand, so that their account may label them and no other pod."""
    _, service = pool_and_service(plan)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(plan),
        "spec": {
            "replicas": service.replicas,
            "serviceName": metadata(plan)["name"],
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector(plan)},
            "template": pod_template(plan),
        },
    }


def lease(plan: Plan) -> Manifest:
    """Make the Lease, which the package renews but never makes. Who holds it is the pods' business: no word of ours."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata(plan),
        "spec": {"leaseDurationSeconds": LEASE_SECONDS},
    }


def role(plan: Plan) -> Manifest:
    """Allow what the election needs, on this one Lease and on its own pods."""
    _, service = pool_and_service(plan)
    name = metadata(plan)["name"]
    pods = [f"{name}-{index}" for index in range(service.replicas)]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(plan),
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": [name],
                "verbs": ["get", "update", "patch"],
            },
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": pods, "verbs": ["get", "patch"]},
        ],
    }


def role_binding(plan: Plan) -> Manifest:
    name = metadata(plan)["name"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(plan),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": plan.resolved.namespace}],
    }


def disruption_budget(plan: Plan) -> Manifest:
    """Let a drain take one of them at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(plan),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(plan)}},
    }
