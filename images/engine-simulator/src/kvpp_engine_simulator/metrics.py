"""The Prometheus metrics that others read of an engine: capacity, requests, transfers. Names and labels are vLLM's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from kvpp_engine_simulator.arguments import EngineArguments

LABELS = ("model_name", "engine")
TRANSFER_BUCKETS = tuple(float(2 ** (10 + step)) for step in range(1, 25, 2))
"""vllm-ascend kv_p2p/mooncake/stats.py."""


class Metrics:
    """One registry for one engine process; DP ranks count together as engine 0."""

    def __init__(self, arguments: EngineArguments, capacity_tokens: int) -> None:
        self.registry = CollectorRegistry()
        blocks = capacity_tokens // arguments.block_size
        config = {
            "engine": "0",
            "block_size": str(arguments.block_size),
            "num_gpu_blocks": str(blocks),
            "kv_cache_size_tokens": str(blocks * arguments.block_size),
            "kv_cache_max_concurrency": f"{blocks * arguments.block_size / arguments.max_model_len:.2f}",
            "cache_dtype": arguments.main_cache,
        }
        info = Gauge(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", list(config), registry=self.registry
        )
        info.labels(**config).set(1)
        own = (arguments.served_names[0], "0")

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, LABELS, registry=self.registry).labels(*own)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, LABELS, registry=self.registry).labels(*own)

        self.running = gauge("vllm:num_requests_running", "Requests in execution")
        self.waiting = gauge("vllm:num_requests_waiting", "Requests that wait for a slot")
        self.kv_usage = gauge("vllm:kv_cache_usage_perc", "KV cache usage, 1 is full")
        self.prompt_tokens = counter("vllm:prompt_tokens", "Prefill tokens processed")
        self.generation_tokens = counter("vllm:generation_tokens", "Generation tokens processed")
        finished = Counter(
            "vllm:request_success", "Finished requests", (*LABELS, "finished_reason"), registry=self.registry
        )
        self.finished = {reason: finished.labels(*own, reason) for reason in ("stop", "length", "abort", "error")}
        self.transfer_seconds = Histogram(
            "vllm:mooncake_xfer_time_seconds", "Duration of a KV transfer", LABELS, registry=self.registry
        ).labels(*own)
        self.transfer_bytes = Histogram(
            "vllm:mooncake_bytes_transferred",
            "Bytes of a KV transfer",
            LABELS,
            registry=self.registry,
            buckets=TRANSFER_BUCKETS,
        ).labels(*own)
        self.failed_transfers = counter("vllm:mooncake_num_failed_transfers", "Failed KV transfers")

    def text(self) -> bytes:
        return generate_latest(self.registry)
