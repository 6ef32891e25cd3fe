"""A role's engine → the environment of its container.

Ours first (identity, network, timeouts, chip preset), then the user's: a name that we only preset is replaced in its place,
a name that we own can't get here (rules ENV).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.api.v1alpha1 import dump
from kvpp_operator.catalogue.chips import TRANSFER_ENV
from kvpp_operator.plan.model import Plan, RolePlan
from kvpp_operator.render.gang import visible_devices
from kvpp_operator.render.pool.engine import pool_environment
from kvpp_operator.render.tokens import PortRef

EnvVars = list[dict[str, Any]]

HCCL_CONNECT_LEAST, HCCL_CONNECT_MOST = 120, 7200
"""Seconds that HCCL_CONNECT_TIMEOUT takes (launch facts 12.5)."""

TRANSFER_TIMEOUT_MILLISECONDS = "10000"
"""3000 by default, too short under load; a pool's lease must stay above it (launch facts 11.1)."""


def environment(plan: Plan, role: RolePlan) -> EnvVars:
    variables: dict[str, dict[str, Any]] = {}
    for variable in (*ours(plan, role), *(dump(variable) for variable in role.resolved.env)):
        variables[variable["name"]] = variable
    return list(variables.values())


def ours(plan: Plan, role: RolePlan) -> Iterator[dict[str, Any]]:
    # POD_IP first: the kubelet expands $(NAME) only from variables that stand before.
    yield {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
    for name, value in {**identity(role), **timeouts(role), **parallel(role), **preset(role)}.items():
        yield {"name": name, "value": value}
    if role.on_host_network:
        # 60000 and up by default, on every engine of the host (vllm-ascend #16205, EJ0003).
        yield {"name": "HCCL_IF_BASE_PORT", "value": PortRef("hccl")}
    if role.has_transfer:
        for name, value in transfer(role).items():
            yield {"name": name, "value": value}
    for name, value in pool_environment(plan, role).items():
        yield {"name": name, "value": value}
    if (devices := visible_devices(plan, role)) is not None:
        yield devices
    yield from weights_env(role)
    yield from api_key(plan)


def identity(role: RolePlan) -> dict[str, str]:
    """Which address and interface the engine uses; found by itself it may pick the wrong one (vllm-ascend #4103)."""
    named = {
        # "=" is an exact match, a plain name a prefix match (launch facts 11.1, Interfaces).
        "HCCL_SOCKET_IFNAME": f"={role.interface}",
        "GLOO_SOCKET_IFNAME": role.interface,
        "TP_SOCKET_IFNAME": role.interface,
    }
    return {"VLLM_HOST_IP": "$(POD_IP)", "HCCL_IF_IP": "$(POD_IP)", **(named if role.interface else {})}


def timeouts(role: RolePlan) -> dict[str, str]:
    """The startup probe's budget and the engine's own limits belong together: the shortest one decides."""
    return {
        "VLLM_ENGINE_READY_TIMEOUT_S": str(role.startup_seconds),
        "HCCL_CONNECT_TIMEOUT": str(min(max(role.startup_seconds, HCCL_CONNECT_LEAST), HCCL_CONNECT_MOST)),
    }


def parallel(role: RolePlan) -> dict[str, str]:
    layers = role.resolved.role.parallelism.pipeline_layers
    return {
        "VLLM_USE_V2_MODEL_RUNNER": "1" if role.model_runner_v2 else "0",
        **({"VLLM_PP_LAYER_PARTITION": ",".join(map(str, layers))} if layers else {}),
    }


def preset(role: RolePlan) -> dict[str, str]:
    return dict(role.resolved.accelerator.chip.env) if role.resolved.accelerator.env_preset else {}


def transfer(role: RolePlan) -> dict[str, str]:
    accelerator = role.resolved.accelerator
    fabric = TRANSFER_ENV.get((accelerator.chip.name, accelerator.interconnect), {})
    return {
        # Pins the range that the transport draws its ports from: 20000 + 100 for each NPU (launch facts 11.1).
        "ASCEND_BASE_PORT": "20000",
        "ASCEND_CONNECT_TIMEOUT": TRANSFER_TIMEOUT_MILLISECONDS,
        "ASCEND_TRANSFER_TIMEOUT": TRANSFER_TIMEOUT_MILLISECONDS,
        **(fabric if accelerator.env_preset else {}),
    }


def weights_env(role: RolePlan) -> Iterator[dict[str, Any]]:
    """Tokens and caches of model hubs; without a hub, no attempt to reach one: clusters are often cut off from the net."""
    models = [weights for weights in (role.weights, role.draft) if weights is not None]
    found = {variable["name"]: variable for weights in models for variable in weights.env}
    yield from found.values() if found else [{"name": "HF_HUB_OFFLINE", "value": "1"}]


def api_key(plan: Plan) -> Iterator[dict[str, Any]]:
    if (secret := plan.resolved.spec.api_key_secret_ref) is not None:
        yield {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
