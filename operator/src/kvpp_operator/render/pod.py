"""A role's engine → the pod of one node rank (launch facts 12.2 to 12.4)."""

from __future__ import annotations

from typing import Any

from kvpp_operator import names
from kvpp_operator.catalogue.chips import DRIVER, DRIVER_TREE, HostMount
from kvpp_operator.engine_ports import POD_NETWORK_PORTS
from kvpp_operator.plan.model import Plan, RolePlan, Volume
from kvpp_operator.render import gang, lifecycle
from kvpp_operator.render.argv import argv
from kvpp_operator.render.environment import environment
from kvpp_operator.render.merge import merge_pod
from kvpp_operator.render.pool.engine import pod_volumes, pool_annotations, pool_resources, pool_volumes, wait_container
from kvpp_operator.render.tokens import PortRef


def pod_template(plan: Plan, role: RolePlan, rank: int | None) -> dict[str, Any]:
    """`rank` 0: the head (or only) pod; None: the pods of all other ranks."""
    template = {
        "metadata": {
            "labels": {names.HEAD: "true" if rank == 0 else "false", **gang.gang_labels(plan, role)},
            **annotated(pool_annotations(plan, role)),
        },
        "spec": {
            "serviceAccountName": names.part(plan.resolved.name, "engine"),
            "automountServiceAccountToken": False,
            # A Service called `vllm` would set VLLM_PORT=tcp://… and break the start (vLLM, configuration/env_vars).
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": lifecycle.grace_seconds(role),
            **placement(plan, role),
            **({"initContainers": waiting} if (waiting := wait_container(plan, role)) else {}),
            "containers": [container(plan, role, rank)],
            "volumes": [
                *({"name": volume.name, **volume.source} for volume in volumes(plan, role)),
                *pod_volumes(plan, role),
            ],
        },
    }
    written = role.resolved.written
    overrides = [place.pod_template for place in written]
    if rank is None:
        overrides += [place.pod_template.get("worker", {}) for place in written]
    return merge_pod(template, overrides)


def placement(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """Where the pod may run and how its image is pulled; absent where nobody says anything."""
    configuration, spec = plan.resolved.configuration, plan.resolved.spec
    settings: dict[str, Any] = {
        "runtimeClassName": configuration.runtime_class_name,
        "schedulerName": gang.SCHEDULER if spec.gang is not None else configuration.scheduler_name,
        "imagePullSecrets": [{"name": secret.name} for secret in spec.image_pull_secrets],
        "affinity": apart(plan, role),
        **({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if spec.networking.host_network else {}),
    }
    return {key: value for key, value in settings.items() if value}


def apart(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """Prefill and decode of one deployment on one node of the pod network can't transfer KV: status 103900 (vllm-ascend #14506)."""
    if role.apart_from is None:
        return {}
    term = {
        "labelSelector": {"matchLabels": names.role_selector(plan.resolved.name, role.apart_from)},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def container(plan: Plan, role: RolePlan, rank: int | None) -> dict[str, Any]:
    return {
        "name": names.CONTAINER,
        "image": role.image,
        "imagePullPolicy": role.pull_policy,
        # No command: the image's entrypoint sources the CANN environment and then executes its arguments (launch facts 11.1).
        "args": ["vllm", *argv(plan, role, rank)],
        "env": environment(plan, role),
        "ports": container_ports(role, rank),
        "resources": resources(plan, role),
        "volumeMounts": [mount(volume) for volume in volumes(plan, role)],
        **watched(plan, role, rank),
        **({"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}} if role.has_transfer else {}),
        # The first failure's reason reaches the pod's status, and from there ours.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def watched(plan: Plan, role: RolePlan, rank: int | None) -> dict[str, Any]:
    if rank == 0:
        return lifecycle.head(role, has_api_key=plan.resolved.spec.api_key_secret_ref is not None)
    return lifecycle.headless(plan, role)


def resources(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """NPUs and huge pages want equal requests and limits; memory gets no limit by default (launch facts 11.1, CPU)."""
    fixed = {role.resolved.accelerator.resource_name: str(role.resolved.devices_per_pod)}
    pool = pool_resources(plan, role)
    fixed |= {name: amount for name, amount in pool.items() if name.startswith("hugepages-")}
    return {"limits": fixed, "requests": {"cpu": str(role.cpus), **pool, **fixed}}


def annotated(annotations: dict[str, str]) -> dict[str, Any]:
    return {"annotations": annotations} if annotations else {}


def container_ports(role: RolePlan, rank: int | None) -> list[dict[str, Any]]:
    """The API; on the host network every port that this pod really binds, as hostPort: the scheduler's last guard."""
    if not role.on_host_network:
        # The number itself, so that a fragment that names it means this port.
        return [{"name": "http", "containerPort": POD_NETWORK_PORTS["api"], "protocol": "TCP"}] if rank == 0 else []
    ports = [*([("http", PortRef("api"))] if rank == 0 else []), *host_ports(role, rank)]
    return [{"name": name, "containerPort": port, "hostPort": port, "protocol": "TCP"} for name, port in ports]


def host_ports(role: RolePlan, rank: int | None) -> list[tuple[str, PortRef]]:
    """HCCL is missing: it binds base + physical id of its NPUs, which nobody knows beforehand; its block is claimed."""
    resolved, found = role.resolved, []
    if rank == 0 and resolved.data > 1:
        found.append(("dp-rpc", PortRef("dp_rpc")))
    if rank == 0 and resolved.nodes > 1:
        found.append(("master", PortRef("torch_master")))
    if role.name == "prefill":
        # A DP rank's control port is bound on its first node: the head has the ranks that start there.
        on_head = range(max(1, resolved.data // resolved.nodes))
        ranks = on_head if rank == 0 else [one for one in range(resolved.data) if one not in on_head]
        found += [(f"kv-{one}", PortRef("kv", resolved.devices + one)) for one in ranks]
    return found


def volumes(plan: Plan, role: RolePlan) -> list[Volume]:
    """Shared memory, weights, and the host's small files; a volume used twice stands once."""
    found = [
        Volume("shm", {"emptyDir": {"medium": "Memory", "sizeLimit": role.shared_memory}}, "/dev/shm", read_only=False),  # noqa: S108 - a mount point
        *role.weights.volumes,
        *(role.draft.volumes if role.draft else ()),
        *pool_volumes(plan, role),
        *(host_volume(mounted) for mounted in host_mounts(role)),
    ]
    return list({volume.name: volume for volume in found}.values())


def host_mounts(role: RolePlan) -> list[HostMount]:
    """`/etc/hccn.conf` always with KV transfer: without it answers are silently wrong (vllm-ascend #7711). The driver tree
    only where the container runtime does not bring it; it then holds the driver's small files too.
    """
    files = [file for file in role.resolved.accelerator.chip.small_files if role.has_transfer or not file.transfer]
    if role.resolved.accelerator.driver_mounts != "Host":
        return files
    return [*(file for file in files if not file.path.startswith(f"{DRIVER}/")), *DRIVER_TREE]


def host_volume(mounted: HostMount) -> Volume:
    source: dict[str, Any] = {"hostPath": {"path": mounted.path, "type": mounted.type}}
    return Volume(mounted.name, source, mounted.path)


def mount(volume: Volume) -> dict[str, Any]:
    return {
        "name": volume.name,
        "mountPath": volume.mount_path,
        **({"readOnly": True} if volume.read_only else {}),
        **({"subPath": volume.sub_path} if volume.sub_path else {}),
    }
