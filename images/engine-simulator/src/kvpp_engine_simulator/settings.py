"""How the simulated engine behaves where the real one depends on hardware: time, memory, faults.

Everything comes from `SIMULATOR_*` variables, so that a KVPPDeployment sets it per role (`spec.prefill.env`).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

FaultKind = Literal[
    "none",
    "refuse",  # the start-up code says no, with SIMULATOR_FAULT_TEXT
    "out-of-memory",  # the NPU's memory ends while the weights are loaded
    "hang-loading",  # the weights are never loaded
    "hang",  # after N requests: nothing is answered any more, /health neither
    "crash",  # after N requests: the process ends at once
    "garble",  # handed-over KV arrives as something else: answers are wrong and nobody says so (no /etc/hccn.conf)
    "keep",  # a prefill engine that answers without kv_transfer_params: decode does everything itself
]


@dataclass(frozen=True)
class Fault:
    kind: FaultKind = "none"
    after: int = 0
    """Requests that are still answered before a `hang` or `crash`."""
    text: str = ""


@dataclass(frozen=True)
class Settings:
    version: str
    """Release of vLLM Ascend that is played: picks flags and rules."""
    host: str
    """Address that others reach this engine at: `VLLM_HOST_IP`, as in vLLM."""
    load_seconds: float = 1.0
    token_seconds: float = 0.005
    ready_timeout_seconds: float = 600.0
    """`VLLM_ENGINE_READY_TIMEOUT_S`: how long the head waits for its ranks."""
    handover_seconds: float = 480.0
    """`VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT`: how long prefill keeps KV that nobody fetches."""
    kv_gibibytes: float = 20.27
    """KV memory of a rank. The default is what the seed guide's single node had (launch facts 8.3)."""
    chip: str = "950DT"
    profile: str = ""
    """Catalogue name of the model; "" finds it in the served name and the path."""
    api_key: str = ""
    hccl_base_port: int = 0
    """`HCCL_IF_BASE_PORT`; 0 leaves HCCL's ports alone, because its default ones follow the NPUs' physical numbers."""
    fault: Fault = Fault()


class SettingsError(ValueError):
    """A variable holds something else than it should. The text names the variable."""


def settings_from(env: Mapping[str, str]) -> Settings:
    """Read the environment. Raises `SettingsError`."""
    kind = env.get("SIMULATOR_FAULT", "none")
    if kind not in get_args(FaultKind):
        raise SettingsError(f"SIMULATOR_FAULT={kind}: known are {', '.join(get_args(FaultKind))}")
    return Settings(
        version=env.get("SIMULATOR_ENGINE_VERSION", "0.30.0rc2"),
        host=env.get("VLLM_HOST_IP") or own_address(),
        load_seconds=number(env, "SIMULATOR_LOAD_SECONDS", Settings.load_seconds),
        token_seconds=number(env, "SIMULATOR_TOKEN_SECONDS", Settings.token_seconds),
        ready_timeout_seconds=number(env, "VLLM_ENGINE_READY_TIMEOUT_S", Settings.ready_timeout_seconds),
        handover_seconds=number(env, "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT", Settings.handover_seconds),
        kv_gibibytes=number(env, "SIMULATOR_KV_GIBIBYTES", Settings.kv_gibibytes),
        chip=env.get("SIMULATOR_CHIP", Settings.chip),
        profile=env.get("SIMULATOR_MODEL_PROFILE", ""),
        api_key=env.get("VLLM_API_KEY", ""),
        hccl_base_port=int(number(env, "HCCL_IF_BASE_PORT", 0)),
        fault=Fault(kind, int(number(env, "SIMULATOR_FAULT_AFTER", 0)), env.get("SIMULATOR_FAULT_TEXT", "")),  # type: ignore[arg-type]
    )


def number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"{name}={text} is no number") from None


def own_address() -> str:
    """Find the address that packets to the outside carry, as vLLM's get_ip does; loopback where there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))  # TEST-NET-3: connecting a datagram socket sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
