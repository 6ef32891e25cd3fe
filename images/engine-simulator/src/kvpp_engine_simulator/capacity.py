"""How many tokens the simulated KV cache holds: the operator's own arithmetic on the simulated memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpp_engine_simulator.document import document, role_name
from kvpp_operator.capacity import Layout, cache_layout, estimate, stage_layers
from kvpp_operator.configuration import DEFAULT
from kvpp_operator.rules import judge
from kvpp_operator.world import OFFLINE

if TYPE_CHECKING:
    from kvpp_engine_simulator.arguments import EngineArguments
    from kvpp_engine_simulator.settings import Settings
    from kvpp_operator.resolve import Resolved, ResolvedRole

UNKNOWN_BYTES = 70_272
"""DeepSeek V3's bytes per token (launch facts 8.2), where nothing is known."""

GIBIBYTE = 2**30


def tokens(arguments: EngineArguments, settings: Settings) -> int:
    """Count the tokens of one cache replica, whole blocks."""
    memory = settings.kv_gibibytes * GIBIBYTE
    found = resolved_role(arguments, settings)
    fitting = memory / UNKNOWN_BYTES
    if found is not None:
        resolved, role = found
        fitting = memory / fullest_stage(resolved, role)
        gain = estimate(resolved, role) if role.kvpp else None
        fitting *= gain.multiplier if gain else 1.0
    return int(fitting) // arguments.block_size * arguments.block_size


def bytes_per_token(arguments: EngineArguments, settings: Settings) -> int:
    """Count what a transfer moves for each token: every layer once."""
    found = resolved_role(arguments, settings)
    if found is None:
        return UNKNOWN_BYTES
    layout = layout_of(*found)
    return sum(layout.layers) + layout.draft


def resolved_role(arguments: EngineArguments, settings: Settings) -> tuple[Resolved, ResolvedRole] | None:
    resolved = judge(document(arguments, settings), DEFAULT, OFFLINE, ()).resolved
    if resolved is None or resolved.model is None or not resolved.model.kv_lora_rank:
        return None
    role = resolved.role(role_name(arguments))  # type: ignore[arg-type]
    return (resolved, role) if role is not None else None


def layout_of(resolved: Resolved, role: ResolvedRole) -> Layout:
    assert resolved.model is not None
    drafts = (resolved.model.draft_layers or 1) if role.speculative and role.speculative.method == "MTP" else 0
    return cache_layout(resolved.model, resolved.spec.kv_cache, role.accelerator.chip.cache_type, drafts)


def fullest_stage(resolved: Resolved, role: ResolvedRole) -> int:
    """Count the bytes per token that the fullest PP stage keeps on each rank without KVPP."""
    assert resolved.model is not None
    layout = layout_of(resolved, role)
    stages = stage_layers(resolved.model.layers, role.pipeline, role.role.parallelism.pipeline_layers) or [
        resolved.model.layers
    ]
    sums, first = [], 0
    for layers in stages:
        sums.append(sum(layout.layers[first : first + layers]))
        first += layers
    sums[-1] += layout.draft
    return max(sums)
