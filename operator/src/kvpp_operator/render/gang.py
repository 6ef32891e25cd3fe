"""`spec.gang`: one Volcano PodGroup for each engine, so that all its pods get nodes, or none does.

One an engine, not one a deployment: half an engine holds NPUs for nothing, half a deployment serves. Ascend's annotations
(`huawei.com/schedule_policy`, `sp-block`, …) belong on the PodGroup when somebody other than Volcano makes it
(MindCluster's page on Volcano). Volcano's controllers can't be had for tests: what is made here follows its API,
scheduling.volcano.sh/v1beta1, and is checked for shape only.
"""

from __future__ import annotations

from typing import Any

from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan, RolePlan

SCHEDULER = "volcano"
GROUP_NAME = "scheduling.k8s.io/group-name"
"""Annotation by which a pod joins a PodGroup (volcano.sh/apis, KubeGroupNameAnnotationKey)."""

RING = "ring-controller.atlas"
"""Label that Ascend's plugin of Volcano reads from pods and PodGroups."""


def pod_group(plan: Plan, role: RolePlan, sealed: dict[str, Any]) -> Manifest | None:
    """An engine's PodGroup without its identity; None without a gang. `sealed`: the engine's workload, overrides included."""
    gang = plan.resolved.spec.gang
    if gang is None:
        return None
    resolved = role.resolved
    spec = sealed["workload"]["spec"]
    head = spec.get("template") or spec["leaderWorkerTemplate"]["leaderTemplate"]
    priority = head["spec"].get("priorityClassName")
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "labels": gang_labels(plan, role),
            **({"annotations": dict(gang.annotations)} if gang.annotations else {}),
        },
        "spec": {
            "minMember": resolved.nodes,
            "minResources": {resolved.accelerator.resource_name: str(resolved.devices)},
            **({"queue": gang.queue} if gang.queue else {}),
            **({"priorityClassName": priority} if priority else {}),
        },
    }


def gang_labels(plan: Plan, role: RolePlan) -> dict[str, str]:
    """On the engine's pods and its PodGroup."""
    return {RING: role.resolved.accelerator.chip.ring_controller} if plan.resolved.spec.gang is not None else {}


def visible_devices(plan: Plan, role: RolePlan) -> dict[str, Any] | None:
    """The ids that Ascend's plugin of Volcano chose: it writes them to an annotation, the container runtime wants a variable.

    Only where the plugin is at work, which one of its own annotations says; elsewhere the variable would be empty.
    """
    gang = plan.resolved.spec.gang
    if gang is None or not any(key.startswith("huawei.com/") for key in gang.annotations):
        return None
    path = f"metadata.annotations['{role.resolved.accelerator.resource_name}']"
    return {"name": "ASCEND_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def of_engine(template: Manifest, workload: Manifest) -> Manifest:
    """The PodGroup of one engine, called as its workload."""
    metadata = workload["metadata"]
    return {
        **template,
        "metadata": {
            **template["metadata"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**template["metadata"]["labels"], **metadata["labels"]},
        },
    }


def annotation(engine: str) -> dict[str, str]:
    return {GROUP_NAME: engine}
