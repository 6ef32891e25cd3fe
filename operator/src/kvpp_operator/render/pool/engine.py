"""What joining a pool adds to an engine's pods: its file, the wait for the service, environment, huge pages."""

from __future__ import annotations

from typing import Any

from kvpp_operator import names
from kvpp_operator.catalogue import pools
from kvpp_operator.catalogue.chips import HUGE_PAGES
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan, RolePlan, Volume
from kvpp_operator.plan.pool import GIBIBYTE, MemcachePlan, PoolPlan
from kvpp_operator.render.pool.config import LOCAL, MOUNT, OPENSSL, engine_file, openssl, script
from kvpp_operator.render.tokens import PortRef

SOURCE = "/etc/kvpp-pool-source"
"""Where the init container sees the ConfigMap."""

CONFIG, FILES, HUGE = "pool-config", "pool-files", "huge-pages"

GROUP_JOIN_SECONDS = "1200"
"""All ranks join the pool's group while others still load (guides of GLM-5.2 set it; launch facts 4.2)."""


def joins(plan: Plan, role: RolePlan) -> PoolPlan | None:
    """Give the pool, if the role takes part in it."""
    return plan.pool if any(connector.name == "AscendStoreConnector" for connector in role.connectors) else None


def engine_config(plan: Plan) -> Manifest | None:
    """Make the ConfigMap of the role that joins. Its name tells its content: other revisions keep theirs."""
    pool = plan.pool
    if pool is None:
        return None
    name, text = engine_file(plan.resolved.name, pool)
    data = {name: text, **{program: script(program) for program in ("wait.py", "openssl.py")}}
    digest = names.digest("\0".join(f"{key}\0{value}" for key, value in sorted(data.items())))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{pool.name}-{digest}",
            "namespace": plan.resolved.namespace,
            "labels": {**names.base_labels(plan.resolved.name), "app.kubernetes.io/component": "pool"},
        },
        "immutable": True,
        "data": data,
    }


def fills(pool: PoolPlan) -> bool:
    """Whether the init container writes the file: local services listen on the pod's own address, TLS wants libraries."""
    backend = pool.backend
    if not isinstance(backend, MemcachePlan):
        return False
    return backend.protocol in pools.LISTENING_PROTOCOLS or bool(openssl(backend.local_config, OPENSSL))


def pool_environment(plan: Plan, role: RolePlan) -> dict[str, str]:
    """For every role of a deployment with a pool; decode only gets what must be equal everywhere.

    No LD_LIBRARY_PATH, although guides set one: a pod's value would replace the image's, and the pinned packages do
    without (memcache-hybrid loads its libraries by absolute path, Mooncake's carry their search path; both seen).
    """
    if plan.pool is None:
        return {}
    equal = {"PYTHONHASHSEED": "0"}
    pool = joins(plan, role)
    if pool is None:
        return equal
    if not isinstance(pool.backend, MemcachePlan):
        return {**equal, "MOONCAKE_CONFIG_PATH": f"{MOUNT}/mooncake.json"}
    return {**equal, "MMC_LOCAL_CONFIG_PATH": f"{MOUNT}/{LOCAL}", "MF_GROUP_JOIN_MAX_TIMEOUT": GROUP_JOIN_SECONDS}


def pool_volumes(plan: Plan, role: RolePlan) -> list[Volume]:
    """List what the engine's container mounts."""
    pool, config = joins(plan, role), engine_config(plan)
    if pool is None or config is None:
        return []
    name, _ = engine_file(plan.resolved.name, pool)
    if fills(pool):
        mounted = [Volume(FILES, {"emptyDir": {}}, MOUNT)]
    else:
        # A single file by subPath: memcache refuses symbolic links, which all files of a mounted ConfigMap are.
        source = {"configMap": {"name": config["metadata"]["name"]}}
        mounted = [Volume(CONFIG, source, f"{MOUNT}/{name}", sub_path=name)]
    if huge_pages(plan, role) is not None:
        mounted.append(Volume(HUGE, {"emptyDir": {"medium": "HugePages-2Mi"}}, "/dev/hugepages", read_only=False))
    return mounted


def pod_volumes(plan: Plan, role: RolePlan) -> list[dict[str, Any]]:
    """Volumes of the pod that only the init container mounts."""
    pool, config = joins(plan, role), engine_config(plan)
    if pool is None or config is None or not fills(pool):
        return []
    return [{"name": CONFIG, "configMap": {"name": config["metadata"]["name"]}}]


def wait_container(plan: Plan, role: RolePlan) -> list[dict[str, Any]]:
    """Hold the engine back until the pool answers, for as long as it takes.

    To end with an error would make LeaderWorkerSet build the group anew each time. It runs in the engine's own image,
    without NPUs: the node needs that image anyway, so there is none more to mirror.
    """
    pool = joins(plan, role)
    if pool is None:
        return []
    name, text = engine_file(plan.resolved.name, pool)
    command = ["python3", f"{SOURCE}/wait.py", *map(str, pool.endpoints)]
    mounts = [{"name": CONFIG, "mountPath": SOURCE, "readOnly": True}]
    environment: list[dict[str, Any]] = []
    if fills(pool):
        command += ["--fill", f"{SOURCE}/{name}", f"{MOUNT}/{name}"]
        if OPENSSL in text:
            command += ["--openssl", OPENSSL]
        mounts.append({"name": FILES, "mountPath": MOUNT})
        port = PortRef("local_service") if role.on_host_network else str(pools.LOCAL_SERVICE_PORT)
        environment = [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            {"name": "LOCAL_SERVICE_PORT", "value": port},
        ]
    return [
        {
            "name": names.POOL_WAIT,
            "image": role.image,
            "imagePullPolicy": role.pull_policy,
            "command": command,
            **({"env": environment} if environment else {}),
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            "volumeMounts": mounts,
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]


def huge_pages(plan: Plan, role: RolePlan) -> str | None:
    """`hugepages-2Mi` of a pod: what its devices lend, on fabrics that need it (launch facts 11.1); None: none."""
    pool, accelerator = joins(plan, role), role.resolved.accelerator
    if pool is None or accelerator.huge_pages == "0":
        return None
    if accelerator.huge_pages is not None:
        return accelerator.huge_pages
    needs = (accelerator.chip.name, accelerator.interconnect) in HUGE_PAGES
    return f"{-(-lent_bytes(pool, role) // GIBIBYTE)}Gi" if needs else None


def pool_resources(plan: Plan, role: RolePlan) -> dict[str, str]:
    """On top of the engine's requests. Memory lent to the pool is asked for, so that no second pod is put upon it."""
    pool = joins(plan, role)
    if pool is None:
        return {}
    pages = huge_pages(plan, role)
    return {"hugepages-2Mi": pages} if pages is not None else {"memory": f"{-(-lent_bytes(pool, role) // GIBIBYTE)}Gi"}


def lent_bytes(pool: PoolPlan, role: RolePlan) -> int:
    """By one pod."""
    return pool.share_bytes * role.resolved.devices_per_pod


def pool_annotations(plan: Plan, role: RolePlan) -> dict[str, str]:
    """Put the layout's identity on each pod, and so in the revision's hash."""
    pool = joins(plan, role)
    return {names.POOL: pool.layout.identity} if pool is not None else {}
