"""The identity that engine pods run under: no token, no rights."""

from __future__ import annotations

from kvpp_operator import names
from kvpp_operator.manifest import Manifest


def engine_account(deployment: str, namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": names.part(deployment, "engine"),
            "namespace": namespace,
            "labels": names.base_labels(deployment),
        },
        "automountServiceAccountToken": False,
    }
