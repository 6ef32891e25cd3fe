"""A role's engine → the `vllm serve` command line. The only module that knows vLLM's flag names.

Flags: launch facts 6 and 7.2; every flag is checked against the release's own parser by `make conformance`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.api.role import Scheduler
from kvpp_operator.plan.model import Plan, RolePlan
from kvpp_operator.render.tokens import Json, PodRef, PortRef, Token
from kvpp_operator.render.transfer import transfer_config
from kvpp_operator.resolve import Resolved, deep_merge

GRAPH_MODES = {
    "Piecewise": "PIECEWISE",
    "FullDecodeOnly": "FULL_DECODE_ONLY",
    "FullAndPiecewise": "FULL_AND_PIECEWISE",
    "Full": "FULL",
}
METHODS = {"MTP": "mtp", "DSpark": "dspark", "Eagle3": "eagle3", "DFlash": "dflash"}
LEADER = PodRef("LWS_LEADER_ADDRESS")
RANK = PodRef("LWS_WORKER_INDEX")


def argv(plan: Plan, role: RolePlan, rank: int | None) -> list[Token]:
    """Arguments of one node rank, `serve` first. `rank` None: a worker's template, whose rank only the pod knows."""
    return [
        "serve",
        role.weights.model,
        *model_flags(plan, role),
        *parallel_flags(role),
        *node_flags(role, rank),
        *graph_flags(role),
        *scheduler_flags(role.resolved.scheduler),
        *speculative_flags(role),
        *cache_flags(plan.resolved, role),
        *config_flags(plan, role),
        *([] if role.shutdown_seconds == 0 else ["--shutdown-timeout", str(role.shutdown_seconds)]),
        *role.resolved.extra_args,
    ]


def model_flags(plan: Plan, role: RolePlan) -> Iterator[Token]:
    model = plan.resolved.spec.model
    yield from ("--served-model-name", role.served_name, "--host", "0.0.0.0", "--port", PortRef("api"))  # noqa: S104 - a pod serves on its own address
    if role.weights.revision:
        yield from ("--revision", role.weights.revision)
    if model.quantization:
        yield from ("--quantization", model.quantization)
    if model.max_model_len:
        yield from ("--max-model-len", str(model.max_model_len))
    if role.trust_remote_code:
        yield "--trust-remote-code"


def parallel_flags(role: RolePlan) -> Iterator[Token]:
    parallelism = role.resolved.role.parallelism
    yield from ("--tensor-parallel-size", str(parallelism.tensor))
    for flag, size in (
        ("--pipeline-parallel-size", parallelism.pipeline),
        ("--data-parallel-size", parallelism.data),
        ("--prefill-context-parallel-size", parallelism.prefill_context),
        ("--decode-context-parallel-size", parallelism.decode_context),
    ):
        if size > 1:
            yield from (flag, str(size))
    if parallelism.expert:
        yield "--enable-expert-parallel"


def node_flags(role: RolePlan, rank: int | None) -> Iterator[Token]:
    """Rendezvous of an engine over several nodes. Data-parallel ranks follow from it: a start rank on the head would switch
    to hybrid load balancing (launch facts 11.1).
    """
    api_servers = role.resolved.role.api_servers
    if role.on_host_network and role.resolved.data > 1:
        yield from ("--data-parallel-rpc-port", PortRef("dp_rpc"))
    if rank == 0 and api_servers is not None:
        yield from ("--api-server-count", str(api_servers))
    if role.resolved.nodes == 1:
        return
    yield from ("--distributed-executor-backend", "mp", "--nnodes", str(role.resolved.nodes))
    yield from ("--node-rank", RANK if rank is None else str(rank), "--master-addr", LEADER)
    yield from ("--master-port", PortRef("torch_master"))
    if rank != 0:
        yield "--headless"


def graph_flags(role: RolePlan) -> Iterator[Token]:
    """Always explicit: left alone, vLLM picks a full graph mode that KVPP refuses (launch facts 1.2 rule 6)."""
    mode = role.resolved.role.graph_mode
    if mode == "Eager":
        yield "--enforce-eager"
        return
    config: dict[str, Any] = {"cudagraph_mode": GRAPH_MODES[mode]}
    if sizes := role.resolved.role.graph_capture_sizes:
        config["cudagraph_capture_sizes"] = sizes
    yield from ("--compilation-config", Json(config))


def scheduler_flags(scheduler: Scheduler) -> Iterator[Token]:
    for flag, number in (
        ("--max-num-batched-tokens", scheduler.max_num_batched_tokens),
        ("--max-num-seqs", scheduler.max_num_seqs),
        ("--gpu-memory-utilization", scheduler.gpu_memory_utilization),
    ):
        if number is not None:
            yield from (flag, str(number))
    for name, switch in (
        ("enable-chunked-prefill", scheduler.chunked_prefill),
        ("enable-prefix-caching", scheduler.prefix_caching),
        ("async-scheduling", scheduler.async_scheduling),
    ):
        if switch is not None:
            yield f"--{name}" if switch else f"--no-{name}"


def speculative_flags(role: RolePlan) -> Iterator[Token]:
    speculative = role.resolved.speculative
    if speculative is None:
        return
    config: dict[str, Any] = {"method": METHODS[speculative.method], "num_speculative_tokens": speculative.tokens}
    if role.draft is not None:
        config["model"] = role.draft.model
    if role.draft is not None and role.draft.revision:
        config["revision"] = role.draft.revision
    if speculative.enforce_eager is not None:
        config["enforce_eager"] = speculative.enforce_eager
    yield from ("--speculative-config", Json(config))


def cache_flags(resolved: Resolved, role: RolePlan) -> Iterator[Token]:
    """C8 and C4 as flags from 0.29 on (launch facts 7.2)."""
    layout, eight_bit = resolved.spec.kv_cache, role.resolved.accelerator.chip.cache_type
    if not resolved.at_least("0.29.0rc1"):
        return
    if layout.main == "C8":
        yield from ("--kv-cache-dtype", eight_bit)
    if layout.indexer != "Auto":
        yield from ("--attention-config", Json({"indexer_kv_dtype": eight_bit if layout.indexer == "C8" else "mxfp4"}))


def config_flags(plan: Plan, role: RolePlan) -> Iterator[Token]:
    additional = deep_merge(role.resolved.additional_config, own_additional_config(plan.resolved, role))
    if additional:
        yield from ("--additional-config", Json(additional))
    if role.connectors:
        yield from ("--kv-transfer-config", Json(transfer_config(plan.resolved.spec.kv_transfer, role.connectors)))


def own_additional_config(resolved: Resolved, role: RolePlan) -> dict[str, Any]:
    ours: dict[str, Any] = {"enable_kvpp": True} if role.resolved.kvpp else {}
    if not resolved.at_least(
        "0.29.0rc1"
    ):  # the keys of 0.28; later releases overwrite them silently (launch facts 7.2)
        layout = resolved.spec.kv_cache
        ours |= {"enable_sparse_li_c8": True} if layout.indexer == "C8" else {}
        ours |= {"enable_sparse_sfa_c8": True} if layout.main == "C8" else {}
    return ours
