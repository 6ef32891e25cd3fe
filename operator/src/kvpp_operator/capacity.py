"""How many more tokens fit into the KV cache with KVPP: arithmetic, no measurement.

Per PP stage each rank of a KVPP group of K keeps the caches of its own layers (the first `n mod K` ranks one more), two
scratch buffers as large as the largest layer, and all draft layers. Blocks are common to all ranks, so the fullest rank
of the fullest stage limits (launch facts 8.1: `core/kv_cache_placement.py`, `worker/kvpp_cache.py` of vLLM Ascend 0.30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvpp_operator.api.v1alpha1 import KvCache
from kvpp_operator.catalogue.chips import CacheType
from kvpp_operator.catalogue.models import ModelFacts
from kvpp_operator.resolve import Resolved, ResolvedRole

KVPP_SHARE = 0.985
"""What KVPP itself leaves of the KV memory: fitted to both measurements of the seed guide (launch facts 8.3)."""

BF16 = 2
SCALES = 16
"""The packed 8-bit main cache holds the latent in 8 bit, the rotary part in bf16 and scales: 512 + 128 + 16 = 656 bytes
(launch facts 8.2)."""

INDEXER_BYTES: dict[tuple[str, CacheType], int] = {
    ("C8", "fp8"): 132, ("C8", "int8"): 130, ("C4", "fp8"): 68, ("C4", "int8"): 68,
}  # fmt: skip
"""Bytes per token and layer of an indexer of width 128 (launch facts 8.2): values and their scales."""

SCRATCH_BUFFERS = 2


@dataclass(frozen=True)
class Estimate:
    """Predicted ratio of tokens with KVPP to tokens without, on the same memory."""

    multiplier: float
    method: Literal["arithmetic", "uniform layers"]
    """`uniform layers`: the widths of the caches are unknown, so every layer counts the same."""


@dataclass(frozen=True)
class Layout:
    """Bytes per token of each target layer's bundle (attention and its indexer), and of all draft layers."""

    layers: tuple[int, ...]
    draft: int = 0


def estimate(resolved: Resolved, role: ResolvedRole) -> Estimate | None:
    """The prediction for a role, None where nothing is known of the model. A group of one gains nothing: 1.0."""
    model = resolved.model
    group = role.role.parallelism.kvpp_group
    stages = stage_layers(model.layers, role.pipeline, role.role.parallelism.pipeline_layers) if model else None
    if model is None or stages is None:
        return None
    has_mtp = role.speculative is not None and role.speculative.method == "MTP"
    drafts = (model.draft_layers or 1) if has_mtp else 0
    layout = cache_layout(model, resolved.spec.kv_cache, role.accelerator.chip.cache_type, drafts)
    share = KVPP_SHARE if group > 1 else 1.0
    return Estimate(ratio(layout, stages, group) * share, "arithmetic" if model.kv_lora_rank else "uniform layers")


def ratio(layout: Layout, stages: Sequence[int], group: int) -> float:
    """Tokens with KVPP / tokens without, before what KVPP itself takes: `ratio(uniform 78, [78], 8)` = 6.5.

    `stages`: layers of each PP stage, in order; `group`: TP x PCP. A group of one has no scratch buffers: 1.0.
    """
    if group == 1:
        return 1.0
    without, fullest, first = 0, 0, 0
    for number, count in enumerate(stages):
        layers = layout.layers[first : first + count]
        first += count
        draft = (
            layout.draft if number == len(stages) - 1 else 0
        )  # the drafter runs on the last stage (launch facts 6.2)
        without = max(without, sum(layers) + draft)
        scratch = SCRATCH_BUFFERS * max(layers, default=0)
        fullest = max(fullest, max(owned(layers, group)) + scratch + draft)
    return without / fullest if fullest else 1.0


def owned(layers: Sequence[int], group: int) -> list[int]:
    """Bytes of the layers that each rank of a group owns: contiguous runs, the first ranks one layer longer."""
    short, longer = divmod(len(layers), group)
    sums, first = [], 0
    for rank in range(group):
        count = short + (rank < longer)
        sums.append(sum(layers[first : first + count]))
        first += count
    return sums


def stage_layers(layers: int, stages: int, split: Sequence[int] | None) -> list[int] | None:
    """Layers of each PP stage; None when the user's split does not cover the model.

    Without a split: evenly, the remainder from the last stage but one backwards (vLLM's get_pp_indices).
    """
    if split is not None:
        return list(split) if len(split) == stages and sum(split) == layers else None
    if stages > layers:
        return None
    short, longer = divmod(layers, stages)
    counts = [short] * stages
    for step in range(longer):
        counts[-2 - step] += 1
    return counts


def cache_layout(model: ModelFacts, kv_cache: KvCache, cache_type: CacheType, draft_layers: int) -> Layout:
    """Bytes per token and layer of a model's caches as the spec stores them; 1 for each layer where widths are unknown."""
    if not model.kv_lora_rank:
        return Layout((1,) * model.layers, draft_layers)
    rope = model.rope_head_dim or 0
    packed = kv_cache.main == "C8"
    main = model.kv_lora_rank + BF16 * rope + SCALES if packed else BF16 * (model.kv_lora_rank + rope)
    width = model.indexer_head_dim or 0
    indexer = INDEXER_BYTES.get((kv_cache.indexer, cache_type), BF16 * width) if width else 0
    places = indexer_places(model.layers, model.indexer_layers)
    layers = tuple(main + (indexer if layer in places else 0) for layer in range(model.layers))
    return Layout(layers, draft_layers * (main + indexer))


def indexer_places(layers: int, indexers: int) -> frozenset[int]:
    """Layers that have an indexer of their own; the others reuse one.

    GLM-5.2 computes indices in layers 0, 1, 2 and then in every fourth from 6 on (launch facts 8.2). Other counts are
    spread evenly.
    """
    if indexers >= layers:
        return frozenset(range(layers))
    frequent = frozenset({0, 1, 2, *range(6, layers, 4)})
    if len(frequent) == indexers:
        return frequent
    return frozenset(number * layers // indexers for number in range(indexers))
