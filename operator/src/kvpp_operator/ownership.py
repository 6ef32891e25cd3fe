"""Which flag, environment variable and additional-config key belongs to which field, or to the operator itself.

One table: the rules refuse what stands in it, and `docs/flags.md` is generated from it. Flags by their long name; the
engine's aliases, short forms and abbreviations come from the flag catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

When = Literal["always", "pooling", "hostNetwork", "hub"]
"""Where the operator claims a name: always, with a pool, on the host network, with a source that is a model hub."""

ROLE = "<role>"
"""Stands for `spec.unified`, `spec.prefill` or `spec.decode`."""


@dataclass(frozen=True)
class Owned:
    """Names that one field, or the operator, writes."""

    field: str
    """The user's field; empty where the operator decides alone."""
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    json_keys: tuple[str, ...] = ()
    """Single keys of a JSON flag, `--flag.key`; the other keys of that flag are the user's."""
    why: str = ""
    when: When = "always"

    def place(self, written: str) -> str:
        """The field as a user of `written` (`spec.prefill`, `spec.engine`) has to name it."""
        role = "each role's" if written == "spec.engine" else written
        joint = " " if written == "spec.engine" else "."
        return self.field.replace(f"{ROLE}.", f"{role}{joint}")


OWNED: tuple[Owned, ...] = (
    Owned("spec.model.source", flags=("--model", "--revision"), env=("VLLM_USE_MODELSCOPE",)),
    Owned("spec.model.source", env=("HF_HOME", "MODELSCOPE_CACHE"), when="hub"),
    Owned("spec.model.source.huggingFace.tokenSecretRef", flags=("--hf-token",), env=("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
          why="a token never stands in a command line or a spec"),
    Owned("spec.model.source.modelScope.tokenSecretRef", env=("MODELSCOPE_API_TOKEN",),
          why="a token never stands in a spec"),
    Owned("spec.model.servedName", flags=("--served-model-name",)),
    Owned("spec.model.quantization", flags=("--quantization",)),
    Owned("spec.model.maxModelLen", flags=("--max-model-len",)),
    Owned("spec.model.trustRemoteCode", flags=("--trust-remote-code",)),
    Owned("spec.kvpp.enabled", keys=("enable_kvpp",), why="KVPP runs on unified and prefill, never on decode"),
    Owned("spec.kvCache.main", flags=("--kv-cache-dtype",), keys=("enable_sparse_sfa_c8",)),
    Owned("spec.kvCache.indexer", keys=("enable_sparse_li_c8",), json_keys=("--attention-config.indexer_kv_dtype",)),
    Owned("spec.kvTransfer", flags=("--kv-transfer-config",)),
    Owned("spec.pooling", flags=("--kv-offloading-size", "--kv-offloading-backend"),
          why="they put a connector of their own in the place of ours"),
    Owned("spec.pooling", env=("PYTHONHASHSEED", "MMC_LOCAL_CONFIG_PATH", "MMC_META_CONFIG_PATH", "MOONCAKE_CONFIG_PATH",
                               "MOONCAKE_MASTER", "MOONCAKE_GLOBAL_SEGMENT_SIZE"),
          why="they are equal on all engines of a pool", when="pooling"),
    Owned("spec.apiKeySecretRef", flags=("--api-key",), env=("VLLM_API_KEY",), why="a key never stands in a command line or a spec"),
    Owned("<role>.parallelism.tensor", flags=("--tensor-parallel-size",)),
    Owned("<role>.parallelism.pipeline", flags=("--pipeline-parallel-size",)),
    Owned("<role>.parallelism.pipelineLayers", env=("VLLM_PP_LAYER_PARTITION",)),
    Owned("<role>.parallelism.data", flags=("--data-parallel-size",)),
    Owned("<role>.parallelism.prefillContext", flags=("--prefill-context-parallel-size",)),
    Owned("<role>.parallelism.decodeContext", flags=("--decode-context-parallel-size",)),
    Owned("<role>.parallelism.expert", flags=("--enable-expert-parallel",)),
    Owned("<role>.graphMode", flags=("--enforce-eager", "--compilation-config", "--optimization-level")),
    Owned("<role>.graphCaptureSizes", flags=("--cudagraph-capture-sizes", "--max-cudagraph-capture-size")),
    Owned("<role>.scheduler.maxNumBatchedTokens", flags=("--max-num-batched-tokens",)),
    Owned("<role>.scheduler.maxNumSeqs", flags=("--max-num-seqs",)),
    Owned("<role>.scheduler.gpuMemoryUtilization", flags=("--gpu-memory-utilization",)),
    Owned("<role>.scheduler.chunkedPrefill", flags=("--enable-chunked-prefill",)),
    Owned("<role>.scheduler.prefixCaching", flags=("--enable-prefix-caching",)),
    Owned("<role>.scheduler.asyncScheduling", flags=("--async-scheduling",)),
    Owned("<role>.speculative", flags=("--speculative-config", "--spec-method", "--spec-model", "--spec-tokens")),
    Owned("<role>.apiServers", flags=("--api-server-count",)),
    Owned("<role>.additionalConfig", flags=("--additional-config",)),
    Owned("<role>.startupTimeout", env=("VLLM_ENGINE_READY_TIMEOUT_S", "HCCL_CONNECT_TIMEOUT"),
          why="they belong together with the probe's budget"),
    Owned("<role>.shutdownTimeout", flags=("--shutdown-timeout",), why="it belongs together with the pod's grace period"),
    Owned("spec.networking.interface", env=("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"),
          why="they name one interface of the host", when="hostNetwork"),
    Owned("", flags=("--config",), why="a file could set anything that fields own"),
    Owned("", flags=("--host", "--port", "--uds"), why="probes, Services and the router reach the engine there"),
    Owned("", flags=("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs", "--ssl-ciphers", "--enable-ssl-refresh"),
          why="probes and the router speak plain HTTP to the engine"),
    Owned("", flags=("--nnodes", "--node-rank", "--master-addr", "--master-port", "--headless", "--distributed-executor-backend"),
          env=("MASTER_ADDR", "MASTER_PORT"), why="the nodes of an engine follow from its parallel sizes"),
    Owned("", flags=("--data-parallel-size-local", "--data-parallel-start-rank", "--data-parallel-rank",
                     "--data-parallel-address", "--data-parallel-rpc-port", "--data-parallel-backend",
                     "--data-parallel-hybrid-lb", "--data-parallel-external-lb",
                     "--data-parallel-multi-port-external-lb", "--data-parallel-supervisor-port"),
          env=("VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL", "VLLM_DP_SIZE", "VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT"),
          why="data-parallel ranks follow from parallelism.data and the nodes"),
    Owned("", env=("VLLM_USE_V2_MODEL_RUNNER",), why="PCP, drafts with a pipeline and DSA-CP decide which model runner is needed"),
    Owned("", env=("VLLM_HOST_IP", "HCCL_IF_IP", "POD_IP"), why="it is the pod's own address"),
    Owned("", env=("VLLM_PORT",), why="the engine takes it for a base port and fails on what Kubernetes injects"),
    Owned("", env=("ASCEND_BASE_PORT", "MC_MIN_RPC_PORT", "MC_MAX_RPC_PORT"), why="kv blocks keep clear of the transport's ports"),
    Owned("", env=("HCCL_IF_BASE_PORT", "HCCL_HOST_SOCKET_PORT_RANGE"), why="ports of a host are claimed in the ledger",
          when="hostNetwork"),
    Owned("", env=("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"), why="the device plugin gives the NPUs of a pod"),
    Owned("", env=("LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE"), why="LeaderWorkerSet sets it"),
)  # fmt: skip

BY_FLAG: dict[str, Owned] = {flag: owned for owned in OWNED for flag in owned.flags}
BY_ENV: dict[str, Owned] = {name: owned for owned in OWNED for name in owned.env}
BY_KEY: dict[str, Owned] = {key: owned for owned in OWNED for key in owned.keys}
BY_JSON_KEY: dict[str, Owned] = {key: owned for owned in OWNED for key in owned.json_keys}
