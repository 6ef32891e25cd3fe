"""Mooncake's master (launch facts 4.3)."""

from __future__ import annotations

from typing import Any

from kvpp_operator.catalogue import pools
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import MooncakePlan
from kvpp_operator.render.pool.service import account, cluster_service, pod, pool_and_service, single

CONTAINER = "mooncake-master"

CLIENT_TTL_SECONDS = 120
"""10 by default, which clients that bind their threads to CPUs miss: their share is dropped (launch facts 4.3)."""


def master_objects(plan: Plan) -> list[Manifest]:
    return [account(plan), cluster_service(plan), single(plan, pod_template(plan))]


def pod_template(plan: Plan) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        **program(plan),
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a mount point
        **probes(),
    }
    return pod(plan, container, token=False, annotations={}, volumes=[])


def program(plan: Plan) -> dict[str, list[str]]:
    """In the engine's own image its entrypoint loads CANN, which that master wants, and then runs its arguments."""
    _, service = pool_and_service(plan)
    if not service.version:
        return {"args": ["mooncake_master", *arguments(plan)]}
    return {"command": ["mooncake_master"], "args": arguments(plan)}


def arguments(plan: Plan) -> list[str]:
    """Ours first: of a flag given twice the last one counts, and only ports are ours alone (rule POOL046)."""
    pool, service = pool_and_service(plan)
    assert isinstance(pool.backend, MooncakePlan)
    return [
        f"--port={service.ports['rpc']}",
        f"--metrics_port={service.ports['metrics']}",
        f"--default_kv_lease_ttl={pools.MASTER_LEASE_MILLISECONDS}",
        f"--client_ttl={CLIENT_TTL_SECONDS}",
        "--eviction_high_watermark_ratio=0.9",
        "--eviction_ratio=0.1",
        "--logtostderr",
        *pool.backend.master_args,
    ]


def probes() -> dict[str, Any]:
    """By its RPC port: masters of older Mooncake have no `/health`."""
    reached = {"tcpSocket": {"port": "rpc"}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**reached, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**reached, "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**reached, "periodSeconds": 10, "failureThreshold": 6},
    }
