"""The pod of a router: agent and proxy, with the privilege of Pod Security "restricted", spread over nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvpp_operator.api.model import SecretKey

PROXY_PORT = 8100
"""On loopback. Not 8001 or 8002: the proxy invents members there when it starts without any (launch facts 11.1)."""

DRAIN_DELAY_SECONDS = 5
"""Until every node has heard that a router leaves."""

GRACE_BEYOND_SHUTDOWN = 30
USER = 65532
"""Of the image."""

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
TOKEN_SECONDS = 3607
"""What the API server's own admission writes; the kubelet renews the token long before."""


@dataclass(frozen=True)
class RouterPod:
    deployment: str
    name: str
    """Of Service, ConfigMap and ServiceAccount alike."""
    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    release: str
    """Of vLLM Ascend, whose proxy script is run."""
    api_key: SecretKey | None
    shutdown_seconds: int
    port: int


def pod_template(pod: RouterPod, labels: dict[str, str], selector: dict[str, str]) -> dict[str, Any]:
    secrets = [{"name": name} for name in pod.pull_secrets]
    return {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": pod.name,
            "automountServiceAccountToken": False,  # the proxy gets none: see the agent's volume
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": DRAIN_DELAY_SECONDS + pod.shutdown_seconds + GRACE_BEYOND_SHUTDOWN,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **({"imagePullSecrets": secrets} if secrets else {}),
            **spread(selector),
            "containers": [agent(pod), proxy(pod)],
            "volumes": [
                {"name": "api-access", "projected": {"sources": api_access()}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
            ],
        },
    }


def spread(selector: dict[str, str]) -> dict[str, Any]:
    """Apart where there is room: a cluster of one node still gets all of them."""
    matching = {"labelSelector": {"matchLabels": selector}}
    return {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": {**matching, "topologyKey": "kubernetes.io/hostname"}}
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                **matching,
            }
        ],
    }


def agent(pod: RouterPod) -> dict[str, Any]:
    told = {
        "--deployment": pod.deployment,
        "--service": pod.name,
        "--report": pod.name,
        "--listen": f"0.0.0.0:{pod.port}",
        "--proxy": f"http://127.0.0.1:{PROXY_PORT}",
        "--drain-delay": str(DRAIN_DELAY_SECONDS),
        "--shutdown-timeout": str(pod.shutdown_seconds),
    }
    return {
        "name": "agent",
        "image": pod.image,
        "imagePullPolicy": pod.pull_policy,
        "args": ["router-agent", *(word for flag in told.items() for word in flag)],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": field("metadata.name")}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": field("metadata.namespace")}},
            *api_key(pod, "VLLM_API_KEY"),
        ],
        "ports": [{"name": "http", "containerPort": pod.port, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, **timing(2, 3, 1)},
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "http"}, **timing(10, 5, 6)},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": restricted(),
        "volumeMounts": [{"name": "api-access", "mountPath": TOKEN, "readOnly": True}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def proxy(pod: RouterPod) -> dict[str, Any]:
    """The script of the engine's release; `pd-proxy` is the image's way to it."""
    told = {"--host": "127.0.0.1", "--port": str(PROXY_PORT), "--waiting-retry-interval": "1", "--log-level": "WARNING"}
    return {
        "name": "proxy",
        "image": pod.image,
        "imagePullPolicy": pod.pull_policy,
        "command": ["pd-proxy"],
        "args": [pod.release, *(word for flag in told.items() for word in flag)],
        **({"env": key} if (key := api_key(pod, "OPENAI_API_KEY")) else {}),
        # The agent looks at the proxy, which nobody else can reach, and answers for it.
        "livenessProbe": {"httpGet": {"path": "/livez/proxy", "port": pod.port}, **timing(10, 5, 3)},
        # Both containers are told to stop at once, but the agent still passes requests on for a while.
        "lifecycle": {"preStop": {"exec": {"command": ["pd-proxy", "--wait-for-agent", str(pod.port)]}}},
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}},
        "securityContext": restricted(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a mount point
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def api_key(pod: RouterPod, variable: str) -> list[dict[str, Any]]:
    if pod.api_key is None:
        return []
    return [{"name": variable, "valueFrom": {"secretKeyRef": {"name": pod.api_key.name, "key": pod.api_key.key}}}]


def api_access() -> list[dict[str, Any]]:
    """What the kubelet would mount into every container of a pod, for one container only."""
    return [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field("metadata.namespace")}]}},
    ]


def field(path: str) -> dict[str, str]:
    """With the version that the server would write in: what is printed is what lives."""
    return {"apiVersion": "v1", "fieldPath": path}


def restricted() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def timing(period_seconds: int, timeout_seconds: int, failures: int) -> dict[str, Any]:
    return {"periodSeconds": period_seconds, "timeoutSeconds": timeout_seconds, "failureThreshold": failures}
