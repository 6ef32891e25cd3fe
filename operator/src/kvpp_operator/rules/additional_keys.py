"""Keys of `--additional-config` that the engine knows, by release.

Source: `AscendConfig` and its parts in `vllm_ascend/ascend_config.py` of 0.28.0rc1, 0.29.0rc1, 0.30.0rc1 and 0.30.0rc2;
every part forbids what it does not name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from kvpp_operator import versions
from kvpp_operator.versions import Release

FIRST, LATEST = versions.FIRST.name, versions.LATEST.name
V29, V30 = "0.29.0rc1", "0.30.0rc1"


@dataclass(frozen=True)
class Key:
    """A key's type, the releases that know it, and the keys below it when it is a map of its own."""

    kind: Any
    since: str = FIRST
    until: str = LATEST
    inner: Mapping[str, Key] | None = None

    def holds_for(self, release: Release) -> bool:
        return versions.BY_NAME[self.since] <= release <= versions.BY_NAME[self.until]


def part(since: str = FIRST, **keys: Any) -> Key:
    """A map whose keys are known; a bare type is short for a key of every release."""
    inner = {name: key if isinstance(key, Key) else Key(key) for name, key in keys.items()}
    return Key(dict[str, Any], since, inner=inner)


INT_OR_NONE, TEXT_OR_NONE = int | None, str | None
NATURAL, POSITIVE = Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]
UP_TO_2, UP_TO_3 = Annotated[int, Field(ge=0, le=2)], Annotated[int, Field(ge=0, le=3)]
FRACTION = Annotated[float, Field(gt=0, le=1)]
NOT_NEGATIVE = Annotated[float, Field(ge=0)]

STAIR = part(
    V30, load_window_bins=int, load_risk_quantile=float, relative_balance_threshold=float, absolute_balance_threshold=float,
    rank_transfer_limit=int, cross_node_transfer_limit=int, replica_search_num_stages=int, replica_search_radius=int,
    replica_search_beam_size=int, placement_search_backtrack_limit=int,
)  # fmt: skip
EPLB = part(
    dynamic_eplb=bool, expert_map_path=TEXT_OR_NONE, expert_heat_collection_interval=NATURAL,
    algorithm_execution_interval=NATURAL,
    expert_map_record_path=TEXT_OR_NONE, num_redundant_experts=NATURAL, eplb_policy_type=UP_TO_3,
    eplb_heat_collection_stage=Literal["all", "prefill", "decode"], load_collection_phase=Literal["all", "prefill", "decode"],
    stair_config=STAIR,
)  # fmt: skip
SHORT_FIRST = part(enabled=bool, threshold=NATURAL, long_max_wait_ms=NOT_NEGATIVE)
PROFILING_CHUNK = part(
    enabled=bool,
    smooth_factor=FRACTION,
    min_chunk=POSITIVE,
    need_timing=bool | None,
    max_fit_chunk=Annotated[int, Field(ge=6)],
)
BATCH_JOBS = part(
    enabled=bool, max_jobs=NATURAL, reserve_margin_blocks=NATURAL, reserve_max_blocks=POSITIVE,
    low_available_tokens_threshold=POSITIVE, short_decode_token_threshold=POSITIVE,
)  # fmt: skip
DYNTRA = part(
    enabled=bool, enable_diagnostics=bool, mode=Literal["static", "dynamic"], start_step=NATURAL, end_step=int,
    bubble_threshold=Annotated[float, Field(gt=0)], long_req_block_threshold=POSITIVE, dynamic_max_step=POSITIVE,
)  # fmt: skip
SCHEDULERS = {
    "enable_balance_scheduling": Key(bool), "recompute_scheduler_enable": Key(bool),
    "short_request_first_config": SHORT_FIRST, "profiling_chunk_config": PROFILING_CHUNK, "batch_job_sched_config": BATCH_JOBS,
}  # fmt: skip
"""At home in `scheduler_config`; the top level is deprecated and still read."""

KEYS: Mapping[str, Key] = {
    "refresh": Key(bool), "enable_cpu_binding": Key(bool), "multistream_dsv4_dsa_overlap": Key(bool),
    "multistream_engram_overlap": Key(bool, V30), "enable_prefill_mc2": Key(bool),
    "multistream_overlap_shared_expert": Key(bool), "enable_kv_nz": Key(bool), "enable_mc2_hierarchy_comm": Key(bool),
    "enable_dsa_cp": Key(bool), "enable_flashcomm1": Key(bool), "sfa_dcp_force_tmajor_restore": Key(bool),
    "enable_force_eplb": Key(bool), "enable_pcp_o_proj_weight_sharding": Key(bool),
    "enable_pcp_embedding_lmhead_weight_sharding": Key(bool, V30), "draft_window_size": Key(INT_OR_NONE),
    "mix_placement": Key(bool), "combine_quant_mode": Key(Literal[0, 2, 3, 4]), "pa_shape_list": Key(list[Any]),
    "mega_moe_max_tokens": Key(POSITIVE), "ascend_log_path": Key(str), "dump_config_path": Key(TEXT_OR_NONE),
    "dump_config": Key(dict[str, Any]), "mc2_comm_alg": Key(Literal["", "fullmesh", "hierarchy", "fullmesh_v2"]),
    "enable_fused_mc2": Key(UP_TO_2), "enable_mlapo": Key(bool), "mlapo_keep_prefill_weights": Key(bool),
    "msmonitor_use_daemon": Key(bool), "enable_transpose_kv_cache_by_block": Key(bool), "weight_nz_mode": Key(UP_TO_2),
    "enable_reduce_sample": Key(bool, until=V29), "enable_shared_expert_dp": Key(bool),
    "enable_sparse_sfa_c8": Key(bool), "enable_sparse_li_c8": Key(bool), "enable_sparse_li_c4": Key(Any, V30),
    "enable_sparse_sfa_turboquant": Key(Any, V30), "c8_enable_reshape_optim": Key(bool, V29),
    "gdn_prefill_backend": Key(Any), "kda_prefill_backend": Key(Any),
    "enable_kvpp": Key(bool), "kvpp_config": Key(Any), "enable_sp_by_pass": Key(Any), "pd_tp_ratio": Key(Any),
    "pd_head_ratio": Key(Any), "num_head_replica": Key(Any),
    "ascend_compilation_config": part(
        enable_npugraph_ex=bool, enable_static_kernel=bool, enable_super_kernel=bool, fuse_norm_quant=bool,
        fuse_qknorm_rope=bool, fuse_muls_add=bool,
    ),
    "ascend_fusion_config": part(fusion_ops_gmmswigluquant=bool),
    "ascend_warmup_config": part(V30, enable_early_kernel_warmup=bool, enable_early_nz_warmup=bool),
    "eplb_config": EPLB,
    "rejection_sampler_config": part(
        enable_block_verify=bool, enable_entropy_verify=bool, posterior_threshold=FRACTION, posterior_alpha=NOT_NEGATIVE,
    ),
    "rl_config": part(
        enabled=bool, sleep_mode_extra_cleanup=bool, enable_training_consistency=bool, enable_batch_invariant=bool,
    ),
    "xlite_graph_config": part(enabled=bool, full_mode=bool),
    "finegrained_tp_config": part(
        oproj_tensor_parallel_size=NATURAL, lmhead_tensor_parallel_size=NATURAL, embedding_tensor_parallel_size=NATURAL,
        mlp_tensor_parallel_size=NATURAL,
    ),
    "scheduler_config": Key(dict[str, Any], inner={**SCHEDULERS, "dyntra_lb_config": DYNTRA}),
    **SCHEDULERS,
    "dynamic_spec_config": part(method=Literal["dspark", "dflash"] | None, method_params=dict[str, Any]),
    "sparse_kv_offload_config": part(
        enabled=bool, topk_buffer_size=POSITIVE, dram_size_per_dp_GB=POSITIVE, keep_device_kv_cache=bool, use_fused_overlap=bool,
        fused_op_type=Key(Literal["none", "fused_copy_sfa"], V30),
    ),
}  # fmt: skip

DERIVED = (
    "enable_sp_by_pass", "pd_tp_ratio", "pd_head_ratio", "num_head_replica", "enable_sparse_li_c4",
    "enable_sparse_sfa_turboquant",
)  # fmt: skip
"""Keys that the engine computes itself and drops from the user's config."""


def known(release: Release, keys: Mapping[str, Key] = KEYS) -> Mapping[str, Key]:
    """The keys that a release knows; `latest` knows those of the newest release."""
    return top_level(release) if keys is KEYS else {name: key for name, key in keys.items() if key.holds_for(release)}


@cache
def top_level(release: Release) -> Mapping[str, Key]:
    return {name: key for name, key in KEYS.items() if key.holds_for(release)}
