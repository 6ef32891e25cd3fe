"""Connectors → the JSON of `--kv-transfer-config` (seed guide, KV Transfer Configuration)."""

from __future__ import annotations

from typing import Any

from kvpp_operator.api.v1alpha1 import KvTransfer
from kvpp_operator.plan.model import Connector
from kvpp_operator.render.tokens import PortRef
from kvpp_operator.resolve import deep_merge


def transfer_config(settings: KvTransfer, connectors: tuple[Connector, ...]) -> dict[str, Any]:
    """One connector stands alone; several become children of a MultiConnector whose role is the first child's."""
    parts = [one(connector) for connector in connectors]
    config = parts[0] if len(parts) == 1 else multi(parts)
    extra = deep_merge(config.get("kv_connector_extra_config", {}), settings.extra_config)
    return {
        **config,
        **({"kv_load_failure_policy": settings.load_failure_policy.lower()} if settings.load_failure_policy else {}),
        **({"kv_connector_extra_config": extra} if extra else {}),
    }


def one(connector: Connector) -> dict[str, Any]:
    return {
        "kv_connector": connector.name,
        "kv_role": connector.kv_role,
        **({"kv_port": PortRef("kv")} if connector.port else {}),
        **({"kv_connector_extra_config": connector.extra} if connector.extra else {}),
    }


def multi(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kv_connector": "MultiConnector",
        "kv_role": parts[0]["kv_role"],
        "kv_connector_extra_config": {"connectors": parts},
    }
