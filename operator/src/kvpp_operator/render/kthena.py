"""What kthena's own router is told: a ModelServer of the engines, and a ModelRoute of the served name to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvpp_operator import names

if TYPE_CHECKING:
    from kvpp_operator.manifest import Manifest

API = "networking.serving.volcano.sh/v1alpha1"
"""volcano-sh/kthena, pkg/apis/networking/v1alpha1 (modelserver_types.go, modelroute_types.go)."""


def model_server(deployment: str, metadata: dict[str, Any], model: str, port: int) -> Manifest:
    """The group key keeps prefill and decode of one revision together. `port`: of every engine's API."""
    return {
        "apiVersion": API,
        "kind": "ModelServer",
        "metadata": metadata,
        "spec": {
            "model": model,
            "inferenceEngine": "vLLM",
            "workloadPort": {"port": port, "protocol": "http"},
            "workloadSelector": {
                "matchLabels": {names.DEPLOYMENT: deployment, names.HEAD: "true"},
                "pdGroup": {
                    "groupKey": names.REVISION,
                    "prefillLabels": {names.ROLE: "prefill"},
                    "decodeLabels": {names.ROLE: "decode"},
                },
            },
            # Passes kv_transfer_params on as they are, which the pull connector needs (launch facts 5.3).
            "kvConnector": {"type": "mooncake"},
        },
    }


def model_route(metadata: dict[str, Any], model: str) -> Manifest:
    return {
        "apiVersion": API,
        "kind": "ModelRoute",
        "metadata": metadata,
        "spec": {
            "modelName": model,
            "rules": [{"name": "default", "targetModels": [{"modelServerName": metadata["name"]}]}],
        },
    }
