"""An engine's pod as a Job that looks instead of serving: the same image, volumes, network and placement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvpp_operator import names
from kvpp_operator.api.base import quantity_bytes
from kvpp_operator.manifest import Manifest

LABEL = f"{names.DOMAIN}/preflight"
"""On everything that one run makes; its value tells runs apart."""

MOUNT = "/var/run/kvpp-preflight"
FILE = "probe.py"
SECONDS_AFTERWARDS = 600
"""Should the run be cut off before it takes its Jobs away."""

OF_GANG = ("scheduling.k8s.io/group-name",)
"""A Job belongs to no PodGroup of an engine."""

SECONDS_OVER = 60
"""A pod that waits must still be there when its time is over and it is asked why."""

KEPT_OF_CONTAINER = ("image", "imagePullPolicy", "volumeMounts", "securityContext")
KEPT_OF_POD = (
    "hostNetwork",
    "dnsPolicy",
    "imagePullSecrets",
    "nodeSelector",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "tolerations",
    "volumes",
)


@dataclass(frozen=True)
class Target:
    """What is tried on each node that has the resource."""

    deployment: str
    namespace: str
    role: str
    resource: str
    pod: Mapping[str, Any]
    """Spec of the engine's head, as it would be applied."""
    annotations: Mapping[str, str]

    @property
    def container(self) -> Mapping[str, Any]:
        return next(one for one in self.pod["containers"] if one["name"] == names.CONTAINER)


def targets(wished: Iterable[Manifest], roles: Mapping[str, str]) -> list[Target]:
    """One for each role with engines, from what would be applied. `roles`: role → NPU resource."""
    found: dict[str, Target] = {}
    for manifest in wished:
        meta, spec = manifest["metadata"], manifest.get("spec", {})
        template = spec.get("leaderWorkerTemplate", {}).get("leaderTemplate") or spec.get("template")
        role = meta.get("labels", {}).get(names.ROLE)
        if role in roles and template is not None and names.ENGINE in meta["labels"] and role not in found:
            deployment = meta["labels"][names.DEPLOYMENT]
            annotations = template["metadata"].get("annotations", {})
            kept = {key: value for key, value in annotations.items() if key not in OF_GANG}
            found[role] = Target(deployment, meta["namespace"], role, roles[role], template["spec"], kept)
    return list(found.values())


def needs(target: Target, npus: int) -> dict[str, Any]:
    """What the probe is told. Files: those that the engine's variables name, and the model's own where it is mounted."""
    container, volumes = target.container, target.pod["volumes"]
    shm = next((volume["emptyDir"]["sizeLimit"] for volume in volumes if volume["name"] == "shm"), "0")
    limits, requests = (container["resources"].get(part, {}) for part in ("limits", "requests"))
    pages = next((amount for name, amount in limits.items() if name.startswith("hugepages-")), "0")
    files = [one["value"] for one in container["env"] if one["name"].endswith("_CONFIG_PATH") and "value" in one]
    words = container["args"]
    model = words[2] if words[:2] == ["vllm", "serve"] and words[2].startswith("/") else ""
    return {
        "npus": npus,
        "shm": quantity_bytes(str(shm)),
        "hugepages": quantity_bytes(str(pages)),
        "cpus": quantity_bytes(str(requests.get("cpu", "0"))),
        "transfer": "--kv-transfer-config" in words and target.role != "unified",
        "files": [*files, *([f"{model}/config.json"] if model else [])],
    }


def script(namespace: str, run: str, text: str) -> Manifest:
    """The probe's text, so that any engine's image will do."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"kvpp-preflight-{run}", "namespace": namespace, "labels": {LABEL: run}},
        "data": {FILE: text},
    }


def job(target: Target, node: str, run: str, *, npus: int, seconds: int) -> Manifest:
    """`npus`: asked for, because only then the device plugin brings devices and, mostly, the driver."""
    volume = {"name": "kvpp-preflight", "configMap": {"name": f"kvpp-preflight-{run}"}}
    spec = {key: target.pod[key] for key in KEPT_OF_POD if key in target.pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"kvpp-preflight-{run}-{names.digest(f'{target.deployment}/{target.role}/{node}')}",
            "namespace": target.namespace,
            "labels": {LABEL: run},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds + SECONDS_OVER,
            "ttlSecondsAfterFinished": SECONDS_AFTERWARDS,
            "template": {
                "metadata": {"labels": {LABEL: run}, "annotations": dict(target.annotations)},
                "spec": {
                    **spec,
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "affinity": on(node),
                    "containers": [container(target, npus)],
                    "volumes": [*target.pod["volumes"], volume],
                },
            },
        },
    }


def container(target: Target, npus: int) -> dict[str, Any]:
    engine = target.container
    kept = {key: engine[key] for key in KEPT_OF_CONTAINER if key in engine}
    pages = {
        name: amount for name, amount in engine["resources"].get("limits", {}).items() if name.startswith("hugepages-")
    }
    asked = {**({target.resource: str(npus)} if npus else {}), **pages}
    want = json.dumps(needs(target, npus), separators=(",", ":"))
    return {
        **kept,
        "name": names.CONTAINER,
        # No command, as with the engine: the image's entrypoint sets the environment up.
        "args": ["python3", f"{MOUNT}/{FILE}", "--want", want, "--report", "/dev/termination-log"],
        # Secrets are not needed to look, and one that is missing would keep the pod from starting.
        "env": [one for one in engine["env"] if "secretKeyRef" not in one.get("valueFrom", {})],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi", **asked}, "limits": asked},
        "volumeMounts": [
            *engine["volumeMounts"],
            {"name": "kvpp-preflight", "mountPath": MOUNT, "readOnly": True},
        ],
    }


def on(node: str) -> dict[str, Any]:
    """By the scheduler, which counts NPUs; `nodeName` would go around it."""
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}}
