"""Bounds of `additionalConfig` values that the engine checks after it has parsed their types.

Source: the `model_validator`s of `vllm_ascend/ascend_config.py`, the same in 0.28.0rc1 to 0.30.0rc2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths
from kvpp_operator.rules.additional_config import written
from kvpp_operator.rules.base import Fact, Remove, rule
from kvpp_operator.rules.values import ABSENT, dig, fits
from kvpp_operator.world import World

NATURAL, POSITIVE = Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]
FRACTION, NOT_NEGATIVE = Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(ge=0)]
PHASES = Literal["all", "prefill", "decode"]

Bounds = dict[tuple[str, ...], tuple[Any, Any, str]]
"""keys → (type without bounds, type with them, the bounds in words). What does not fit the first is rule ADD004's."""

SCHEDULER: Bounds = {
    ("short_request_first_config", "threshold"): (int, NATURAL, "0 or more"),
    ("short_request_first_config", "long_max_wait_ms"): (float, NOT_NEGATIVE, "0 or more"),
    ("profiling_chunk_config", "smooth_factor"): (float, FRACTION, "above 0, up to 1"),
    ("profiling_chunk_config", "min_chunk"): (int, POSITIVE, "1 or more"),
    ("profiling_chunk_config", "max_fit_chunk"): (int, Annotated[int, Field(ge=6)], "6 or more"),
    ("batch_job_sched_config", "max_jobs"): (int, NATURAL, "0 or more"),
    ("batch_job_sched_config", "reserve_margin_blocks"): (int, NATURAL, "0 or more"),
    ("batch_job_sched_config", "reserve_max_blocks"): (int, POSITIVE, "1 or more"),
    ("batch_job_sched_config", "low_available_tokens_threshold"): (int, POSITIVE, "1 or more"),
    ("batch_job_sched_config", "short_decode_token_threshold"): (int, POSITIVE, "1 or more"),
    ("dyntra_lb_config", "mode"): (str, Literal["static", "dynamic"], "static or dynamic"),
}
BOUNDS: Bounds = {
    ("weight_nz_mode",): (int, Annotated[int, Field(ge=0, le=2)], "0, 1 or 2"),
    ("enable_fused_mc2",): (int, Annotated[int, Field(ge=0, le=2)], "0, 1 or 2"),
    ("mega_moe_max_tokens",): (int, POSITIVE, "1 or more"),
    ("eplb_config", "eplb_policy_type"): (int, Annotated[int, Field(ge=0, le=3)], "0, 1, 2 or 3"),
    ("eplb_config", "eplb_heat_collection_stage"): (str, PHASES, "all, prefill or decode"),
    ("eplb_config", "load_collection_phase"): (str, PHASES, "all, prefill or decode"),
    ("eplb_config", "num_redundant_experts"): (int, NATURAL, "0 or more"),
    ("eplb_config", "expert_heat_collection_interval"): (int, NATURAL, "0 or more"),
    ("eplb_config", "algorithm_execution_interval"): (int, NATURAL, "0 or more"),
    ("rejection_sampler_config", "posterior_threshold"): (float, FRACTION, "above 0, up to 1"),
    ("rejection_sampler_config", "posterior_alpha"): (float, NOT_NEGATIVE, "0 or more"),
    ("finegrained_tp_config", "oproj_tensor_parallel_size"): (int, NATURAL, "0 or more"),
    ("finegrained_tp_config", "lmhead_tensor_parallel_size"): (int, NATURAL, "0 or more"),
    ("finegrained_tp_config", "embedding_tensor_parallel_size"): (int, NATURAL, "0 or more"),
    ("finegrained_tp_config", "mlp_tensor_parallel_size"): (int, NATURAL, "0 or more"),
    ("sparse_kv_offload_config", "topk_buffer_size"): (int, POSITIVE, "1 or more"),
    ("sparse_kv_offload_config", "dram_size_per_dp_GB"): (int, POSITIVE, "1 or more"),
    ("dynamic_spec_config", "method"): (str, Literal["dspark", "dflash"], "dspark or dflash"),
    **SCHEDULER,
    **{("scheduler_config", *keys): bounds for keys, bounds in SCHEDULER.items()},
}


@rule(
    "ADD009",
    severity="error",
    evidence="check",
    source="AscendConfig of vLLM Ascend 0.28 to 0.30: checks of ranges after the types",
    message="The additional-config key {key} must be {bounds}; the engine stops at {value}.",
    fix="",
)
def value_out_of_bounds(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An additional-config value out of the engine's bounds."""
    for path, config in written(resolved):
        for keys, (kind, bounded, words) in BOUNDS.items() if config else ():
            value = dig(config, keys)
            if value is not ABSENT and fits(value, kind) and not fits(value, bounded):
                place = paths.below(path, *keys)
                yield Fact(place, value, (Remove(place),), {"key": ".".join(keys), "bounds": words})
