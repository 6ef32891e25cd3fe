"""What a command line asks of an engine, as far as the simulation has a use for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

DEFAULT_KV_PORT = 14579
"""vLLM 0.30 config/kv_transfer.py."""


@dataclass(frozen=True)
class Handover:
    """The P/D connector of this engine: MooncakeConnectorV2, alone or inside a MultiConnector."""

    role: str
    port: int
    on_failure: str
    """`kv_load_failure_policy` of the outermost connector: fail (default) or recompute."""

    @property
    def is_producer(self) -> bool:
        return self.role == "kv_producer"


@dataclass(frozen=True)
class Parallel:
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    prefill_context: int = 1
    decode_context: int = 1
    nodes: int = 1
    node_rank: int = 0

    @property
    def replica(self) -> int:
        """Ranks of one DP replica."""
        return self.pipeline * self.prefill_context * self.tensor

    @property
    def world(self) -> int:
        return self.data * self.replica

    @property
    def local(self) -> int:
        """Ranks, and NPUs, of one node."""
        return self.world // self.nodes

    def replicas_that_start_here(self) -> range:
        """DP ranks whose first rank lies on this node: their schedulers run here."""
        first, end = self.node_rank * self.local, (self.node_rank + 1) * self.local
        return range(-(-first // self.replica), -(-end // self.replica))


@dataclass(frozen=True)
class EngineArguments:
    model: str
    served_names: tuple[str, ...]
    parallel: Parallel = Parallel()
    host: str = "0.0.0.0"  # noqa: S104 - vLLM listens on all addresses unless told otherwise
    port: int = 8000
    expert: bool = False
    graph_mode: str = ""
    """`cudagraph_mode`, `NONE` when eager; "" leaves it to the engine, which then takes full graphs."""
    max_model_len: int = 131072
    max_num_seqs: int = 256
    block_size: int = 128
    quantization: str = ""
    main_cache: str = "auto"
    indexer_cache: str = "auto"
    speculative: Json | None = None
    additional: Json = field(default_factory=dict)
    kv_transfer: Json | None = None
    headless: bool = False
    master_address: str = "127.0.0.1"
    master_port: int = 29501
    dp_rpc_port: int = 29550
    shutdown_seconds: float = 0.0
    api_keys: tuple[str, ...] = ()
    pipeline_layers: tuple[int, ...] = ()
    given: Json = field(default_factory=dict)
    """Every flag that was given: what all nodes of an engine must agree on."""

    @property
    def kvpp(self) -> bool:
        return as_bool(self.additional.get("enable_kvpp", False))

    @property
    def handover(self) -> Handover | None:
        config = self.kv_transfer
        if config is None:
            return None
        found = next((part for part in connectors(config) if part.get("kv_connector") == "MooncakeConnectorV2"), None)
        if found is None:
            return None
        policy = config.get("kv_load_failure_policy", "fail")
        return Handover(found.get("kv_role", ""), int(found.get("kv_port", DEFAULT_KV_PORT)), policy)

    def control_ports(self, handover: Handover) -> dict[int, int]:
        """DP rank → port of its control server on this node: kv_port + N + rank (vllm-ascend base_scheduler.py)."""
        first = handover.port + self.parallel.world
        return {rank: first + rank for rank in self.parallel.replicas_that_start_here()}

    @property
    def layout(self) -> Json:
        """What P and D caches must agree on (vllm-ascend pull_worker.py compares block lengths)."""
        drafts = (self.speculative or {}).get("method", "")
        return {"block_size": self.block_size, "main": self.main_cache, "indexer": self.indexer_cache, "draft": drafts}

    @property
    def common(self) -> Json:
        """What every node of the engine must have been told alike."""
        own = ("--node-rank", "--headless", "--host", "--port", "--api-server-count")
        return {flag: value for flag, value in self.given.items() if flag not in own}


def connectors(config: Json) -> list[Json]:
    """List the connectors of a kv-transfer-config: itself, or the children of a MultiConnector."""
    if config.get("kv_connector") == "MultiConnector":
        children: list[Json] = config.get("kv_connector_extra_config", {}).get("connectors", [])
        return children
    return [config]


def as_bool(value: Any) -> bool:
    """Parse the engine's lax boolean (vllm-ascend validate_additional_config_bool). Raises `ValueError`."""
    if isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError(f"additional_config.enable_kvpp must be a boolean, got {value!r}.")


def engine_arguments(model: str, flags: Mapping[str, Any], env: Mapping[str, str]) -> EngineArguments:
    """From flags by their long names, values typed; absent ones take vLLM's defaults."""

    def of(flag: str, default: Any) -> Any:
        value = flags.get(flag)
        return default if value is None else value

    return EngineArguments(
        model=model,
        served_names=tuple(as_list(of("--served-model-name", model))),
        parallel=parallel_of(flags),
        host=of("--host", EngineArguments.host),
        port=int(of("--port", EngineArguments.port)),
        expert=bool(flags.get("--enable-expert-parallel")),
        graph_mode=graph_mode(flags),
        max_model_len=int(of("--max-model-len", EngineArguments.max_model_len)),
        max_num_seqs=int(of("--max-num-seqs", EngineArguments.max_num_seqs)),
        block_size=int(of("--block-size", EngineArguments.block_size)),
        quantization=of("--quantization", ""),
        main_cache=of("--kv-cache-dtype", "auto"),
        indexer_cache=of("--attention-config", {}).get("indexer_kv_dtype", "auto"),
        speculative=flags.get("--speculative-config"),
        additional=of("--additional-config", {}),
        kv_transfer=flags.get("--kv-transfer-config"),
        headless=bool(flags.get("--headless")),
        master_address=of("--master-addr", EngineArguments.master_address),
        master_port=int(of("--master-port", EngineArguments.master_port)),
        dp_rpc_port=int(of("--data-parallel-rpc-port", EngineArguments.dp_rpc_port)),
        shutdown_seconds=float(of("--shutdown-timeout", 0)),
        api_keys=tuple(as_list(of("--api-key", []))),
        pipeline_layers=tuple(int(part) for part in env.get("VLLM_PP_LAYER_PARTITION", "").split(",") if part.strip()),
        given=dict(flags),
    )


def parallel_of(flags: Mapping[str, Any]) -> Parallel:
    def size(flag: str, default: int = 1) -> int:
        value = flags.get(flag)
        return default if value is None else int(value)

    return Parallel(
        tensor=size("--tensor-parallel-size"),
        pipeline=size("--pipeline-parallel-size"),
        data=size("--data-parallel-size"),
        prefill_context=size("--prefill-context-parallel-size"),
        decode_context=size("--decode-context-parallel-size"),
        nodes=size("--nnodes"),
        node_rank=size("--node-rank", 0),
    )


LEVEL_MODES = {"0": "NONE", "1": "PIECEWISE"}
"""`-O0` and `-O1`; from `-O2`, the default, on a full mode (vLLM 0.30 config/vllm.py)."""


def graph_mode(flags: Mapping[str, Any]) -> str:
    if flags.get("--enforce-eager"):
        return "NONE"
    mode = (flags.get("--compilation-config") or {}).get("cudagraph_mode")
    return str(mode).upper() if mode is not None else LEVEL_MODES.get(str(flags.get("--optimization-level")), "")


def as_list(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
