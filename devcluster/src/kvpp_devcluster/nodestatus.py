"""The status that a kubelet would write for its healthy node.  Pure: the time is an argument."""

from __future__ import annotations

import json
from typing import Any

from kvpp_devcluster.api import warn
from kvpp_devcluster.faults import PREFIX

CAPACITY = f"{PREFIX}capacity"
KUBELET_VERSION = "v1.36.3"
BASE_CAPACITY = {"cpu": "192", "memory": "1536Gi", "pods": "250", "ephemeral-storage": "2Ti"}
CONDITIONS = (
    ("Ready", "True", "KubeletReady"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
)


def is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def build(node: dict[str, Any], address: str, *, now: str) -> dict[str, Any]:
    """Write the whole status of a node that is up."""
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    unknown = ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID")
    return {
        "capacity": capacity(node),
        "allocatable": capacity(node),
        "conditions": [{"type": k, "status": s, "reason": r, "message": "", **times} for k, s, r in CONDITIONS],
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": node["metadata"]["name"]},
        ],
        "nodeInfo": {
            "architecture": "arm64",
            "operatingSystem": "linux",
            "containerRuntimeVersion": "simulated://1",
            "kubeletVersion": KUBELET_VERSION,
            **dict.fromkeys(unknown, ""),
        },
    }


def capacity(node: dict[str, Any]) -> dict[str, str]:
    """Add what the node's annotation says to what every node has."""
    text = node["metadata"].get("annotations", {}).get(CAPACITY, "{}")
    try:
        own = {str(name): str(quantity) for name, quantity in json.loads(text).items()}
    except (ValueError, AttributeError):
        warn(f"node {node['metadata']['name']}: {CAPACITY} is not a JSON object: {text}")
        own = {}
    return {**BASE_CAPACITY, **own}
