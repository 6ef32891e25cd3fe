"""Cache layouts (C8, C4): which model, which release, and the same on prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.capacity import indexer_places, stage_layers
from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.given import of_role
from kvpp_operator.world import World

SEED = "seed guide, Supported Features: LI-C8 and SFA-C8 cache layouts"
MAIN, INDEXER = "spec.kvCache.main", "spec.kvCache.indexer"


@rule(
    "CACHE001",
    severity="error",
    evidence="guide",
    validation="seed",
    source=f"{SEED}; launch facts 7.2 and 8.2: the packed 8-bit cache is SFA's",
    message="SFA-C8 (kvCache.main C8) is a layout of SFA models; {model} uses {attention}.",
    fix="",
)
def packed_cache_without_sparse_attention(resolved: Resolved, _: World) -> Iterator[Fact]:
    """SFA-C8 on a model without SFA."""
    model = resolved.model
    if resolved.spec.kv_cache.main == "C8" and model is not None and model.attention != "SFA":
        yield Fact(MAIN, "C8", (Set(MAIN, "Auto"),), {"model": model.name, "attention": model.attention})


@rule(
    "CACHE002",
    severity="error",
    evidence="guide",
    validation="seed",
    source=f"{SEED}; launch facts 7.2: LI is the lightning indexer of SFA models",
    message="LI-{value} (kvCache.indexer) is the cache of an SFA model's indexer; {model} has none.",
    fix="",
)
def indexer_cache_without_indexer(resolved: Resolved, _: World) -> Iterator[Fact]:
    """LI-C8 or LI-C4 on a model without an indexer."""
    model, wanted = resolved.model, resolved.spec.kv_cache.indexer
    if wanted == "Auto" or model is None:
        return
    described = resolved.spec.model.architecture
    says_none = described is not None and described.indexer_layers == 0
    if model.attention != "SFA" or says_none:
        yield Fact(INDEXER, wanted, (Set(INDEXER, "Auto"),), {"model": model.name})


@rule(
    "CACHE003",
    severity="error",
    evidence="guide",
    until="0.28.0rc1",
    source="launch facts 7.2: the indexer's dtype is a flag from 0.29.0rc1 on; 0.28 has a key for LI-C8 only",
    message="vLLM Ascend {release} has no way to ask for LI-C4; the first with one is {first}.",
    fix="or set engine.version to {first} or newer",
)
def four_bit_indexer_before_its_flag(resolved: Resolved, _: World) -> Iterator[Fact]:
    """LI-C4 on a release without a flag for it."""
    if resolved.spec.kv_cache.indexer == "C4":
        yield Fact(INDEXER, "C4", (Set(INDEXER, "C8"),))


@rule(
    "CACHE004",
    severity="warning",
    evidence="guide",
    since="0.29.0rc1",
    until="0.29.0rc1",
    source="vLLM Ascend 0.29.0rc1, ascend_config.py: takes mxfp4, but derives LI-C8 only; LI-C4 is in 0.30.0rc1",
    message="vLLM Ascend {release} takes the flag for LI-C4 but keeps the indexer's cache at 16 bit; {first} has the "
    "layout.",
    fix="or set engine.version to {first} or newer",
)
def four_bit_indexer_without_effect(resolved: Resolved, _: World) -> Iterator[Fact]:
    """LI-C4 on the release that takes the flag and ignores it."""
    if resolved.spec.kv_cache.indexer == "C4":
        yield Fact(INDEXER, "C4", (Set(INDEXER, "C8"),))


@rule(
    "CACHE005",
    severity="error",
    evidence="guide",
    source="launch facts 7.2 and 11.1 (Cache layouts): C8 is int8 on A2 and A3, fp8 on 950; V2 compares block lengths of both sides",
    message="C8 is {prefill} on prefill's {prefill_chip} and {decode} on decode's {decode_chip}: the layouts differ "
    "and every "
    "hand-over fails.",
    fix="or use chips of one kind for both roles",
)
def cache_types_of_both_chips_differ(resolved: Resolved, _: World) -> Iterator[Fact]:
    """C8 on chips that store it differently."""
    prefill, decode = resolved.role("prefill"), resolved.role("decode")
    wanted = {MAIN: resolved.spec.kv_cache.main, INDEXER: resolved.spec.kv_cache.indexer}
    packed = [path for path, layout in wanted.items() if layout == "C8"]
    if prefill is None or decode is None or not packed:
        return
    first, second = prefill.accelerator.chip, decode.accelerator.chip
    if first.cache_type != second.cache_type:
        fix: tuple[Edit, ...] = tuple(Set(path, "Auto") for path in packed)
        words = {
            "prefill": first.cache_type,
            "prefill_chip": first.name,
            "decode": second.cache_type,
            "decode_chip": second.name,
        }
        yield Fact(packed[0], "C8", fix, words)


@rule(
    "CACHE006",
    severity="error",
    evidence="check",
    source="vLLM Ascend 0.30 platform.py, _validate_sfa_dcp_kv_sp: with DCP and a KV connector the context "
    "interleave equals "
    "the block size",
    message="DCP with a KV connector needs --cp-kv-cache-interleave-size equal to the block size (128 unless set).",
    fix="or set decodeContext to 1",
)
def interleave_is_not_the_block_size(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DCP beside a connector, with another interleave than a block."""
    for role in resolved.roles:
        has_connector = resolved.is_disaggregated or (resolved.spec.pooling is not None and role.name != "decode")
        size = role.role.parallelism.decode_context
        if size == 1 or not has_connector:
            continue
        said = {argument.flag: argument for argument in of_role(role)}
        block = said[BLOCK].value if BLOCK in said else DEFAULT_BLOCK
        if INTERLEAVE not in said:
            yield Fact(f"{role.path}.parallelism.decodeContext", size, appended(role, INTERLEAVE, str(block)))
        elif said[INTERLEAVE].value != block:
            last = said[INTERLEAVE].removal
            yield Fact(f"{role.path}.parallelism.decodeContext", size, (*last, *appended(role, INTERLEAVE, str(block))))


BLOCK, INTERLEAVE, DEFAULT_BLOCK = "--block-size", "--cp-kv-cache-interleave-size", 128


def appended(role: ResolvedRole, *tokens: str) -> tuple[Edit, ...]:
    """The role's `extraArgs` with more tokens at their end."""
    first = len(role.role.extra_args)
    return tuple(Set(f"{role.path}.extraArgs[{first + offset}]", token) for offset, token in enumerate(tokens))


@rule(
    "CACHE007",
    severity="error",
    evidence="guide",
    until="0.29.0rc1",
    source="vLLM Ascend 0.28 and 0.29 platform.py, _validate_indexer_pp_config: shared indices do not cross pipeline "
    "stages",
    message="Stage {stage} of the pipeline would start with layer {layer}, which reuses the indices of an earlier "
    "layer; "
    "vLLM Ascend {release} can't pass them between stages, {first} can.",
    fix="or set engine.version to {first} or newer",
)
def shared_indices_across_stages(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A pipeline stage that starts in the middle of an index-sharing group."""
    model = resolved.model
    if model is None or not 0 < model.indexer_layers < model.layers:
        return
    places = indexer_places(model.layers, model.indexer_layers)
    for role in resolved.roles:
        stages = stage_layers(model.layers, role.pipeline, role.role.parallelism.pipeline_layers)
        for stage, first in enumerate(starts(stages or [])):
            if first not in places:
                path = f"{role.path}.parallelism.pipeline"
                split = f"{role.path}.parallelism.pipelineLayers"
                alone = (Remove(split),) if role.role.parallelism.pipeline_layers is not None else ()
                yield Fact(path, role.pipeline, (Set(path, 1), *alone), {"stage": stage, "layer": first})
                break


def starts(stages: list[int]) -> list[int]:
    """First layer of each pipeline stage."""
    return [sum(stages[:number]) for number in range(len(stages))]


@rule(
    "CACHE009",
    severity="warning",
    evidence="guide",
    source="launch facts 7.2: 8-bit floats need 950; vLLM Ascend 0.30 attention/indexer.py: LI-C4 is made by npu_dynamic_mx_quant",
    message="LI-C4 stores 4-bit floats with shared scales; {chip} has no 8-bit floats even, and nobody has shown LI-C4 there.",
    fix="",
)
def four_bits_without_floats(resolved: Resolved, _: World) -> Iterator[Fact]:
    """LI-C4 on chips that have no small floats."""
    chips = [role.accelerator.chip.name for role in resolved.roles if role.accelerator.chip.cache_type == "int8"]
    if resolved.spec.kv_cache.indexer == "C4" and chips:
        yield Fact(INDEXER, "C4", (Set(INDEXER, "C8"),), {"chip": chips[0]})
