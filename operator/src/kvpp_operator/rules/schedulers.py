"""`additionalConfig` keys that need or exclude a role, a layout or an environment."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Fact, Set, rule
from kvpp_operator.rules.values import Place, is_true, scheduling, wins
from kvpp_operator.world import World

PLATFORM = "vLLM Ascend 0.30 platform.py, _check_ascend_config"


def switched_on(role: ResolvedRole, *names: str) -> Iterator[Place]:
    """Scheduler switches that are on for a role."""
    for name in names:
        place = scheduling(role, name)
        if place is not None and is_true(place.value):
            yield place


def part_is_on(role: ResolvedRole, *keys: str) -> Place | None:
    """A part's `enabled`, below `scheduler_config` or at the deprecated top level."""
    place = wins(role, "scheduler_config", *keys, "enabled") or wins(role, *keys, "enabled")
    return place if place is not None and is_true(place.value) else None


@rule(
    "SCHED001",
    severity="error",
    evidence="guide",
    source="launch facts 1.2 rule 36 and 11.1 (Recompute): recompute_scheduler_enable is for kv_consumer only",
    message="The recompute scheduler is for decode only; on {role} the engine refuses or drops it.",
    fix="and set it in spec.decode.additionalConfig where you need it",
)
def recompute_off_decode(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Recompute scheduler on prefill or unified."""
    for role in resolved.roles:
        if role.name != "decode":
            for place in switched_on(role, "recompute_scheduler_enable"):
                yield Fact(place.path, place.value, place.removal, {"role": role.name})


@rule(
    "SCHED002",
    severity="error",
    evidence="check",
    source=f"{PLATFORM}: balance scheduling only without a connector or with kv_role kv_both",
    message="Balance scheduling is for engines that prefill and decode; {role} of this deployment has kv_role "
    "{kv_role}.",
    fix="",
)
def balance_with_disaggregation(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Balance scheduling in a P/D deployment, or with a pool producer."""
    kv_roles = {"prefill": "kv_producer", "decode": "kv_consumer"}
    if resolved.spec.pooling is not None and resolved.spec.pooling.role == "Producer":
        kv_roles["unified"] = "kv_producer"
    for role in resolved.roles:
        for place in switched_on(role, "enable_balance_scheduling"):
            if role.name in kv_roles:
                yield Fact(place.path, place.value, place.removal, {"role": role.name, "kv_role": kv_roles[role.name]})


@rule(
    "SCHED003",
    severity="error",
    evidence="check",
    source="launch facts 1.2 rule 37: dynamic chunked pipeline parallelism needs pipeline parallelism",
    message="profiling_chunk_config sizes chunks for pipeline stages; it needs a pipeline of 2 or more.",
    fix="",
)
def profiling_chunk_without_pipeline(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Profiled chunk sizes without PP."""
    for role in resolved.roles:
        place = part_is_on(role, "profiling_chunk_config")
        if place is not None and role.pipeline == 1:
            yield Fact(place.path, place.value, place.removal)


@rule(
    "SCHED004",
    severity="error",
    evidence="check",
    source="vLLM Ascend 0.30 AscendConfig: profiling_chunk_config and balance scheduling exclude each other",
    message="profiling_chunk_config and balance scheduling can't be on together.",
    fix="",
)
def profiling_chunk_with_balance(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Profiled chunk sizes with balance scheduling."""
    for role in resolved.roles:
        if part_is_on(role, "profiling_chunk_config") is not None:
            for place in switched_on(role, "enable_balance_scheduling"):
                yield Fact(place.path, place.value, place.removal)


@rule(
    "SCHED005",
    severity="error",
    evidence="check",
    source=f"{PLATFORM}: profiling_chunk_config with async scheduling needs Model Runner V2",
    message="profiling_chunk_config with asynchronous scheduling needs Model Runner V2, which this engine does not "
    "run on.",
    fix="",
)
def profiling_chunk_with_async(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Profiled chunk sizes with asynchronous scheduling on the old runner."""
    for role in resolved.roles:
        place = part_is_on(role, "profiling_chunk_config")
        if place is not None and role.scheduler.async_scheduling is not False and not role.runs_model_runner_v2:
            yield Fact(place.path, place.value, (Set(f"{role.path}.scheduler.asyncScheduling", value=False),))


DECODE_ONLY = (
    (("enable_kv_nz",), "the NZ cache layout"),
    (("sparse_kv_offload_config", "enabled"), "sparse KV offload"),
    (("scheduler_config", "dyntra_lb_config", "enabled"), "DyntraLB"),
)


@rule(
    "SCHED006",
    severity="error",
    evidence="check",
    source="vLLM Ascend 0.30 AscendConfig and platform.py: kv_consumer only",
    message="{what} is for decode of a P/D deployment only; on {role} the engine does not start.",
    fix="",
)
def decode_only_off_decode(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Features of decode on another role."""
    for role in resolved.roles:
        if role.name == "decode":
            continue
        for keys, what in DECODE_ONLY:
            place = wins(role, *keys)
            keeps = wins(role, "sparse_kv_offload_config", "keep_device_kv_cache")
            debugging = keys[0] == "sparse_kv_offload_config" and keeps is not None and is_true(keeps.value)
            if place is not None and is_true(place.value) and not debugging:
                yield Fact(
                    place.path, place.value, place.removal, {"what": what[0].upper() + what[1:], "role": role.name}
                )


@rule(
    "SCHED010",
    severity="error",
    evidence="check",
    source="vLLM Ascend 0.28 to 0.30 AscendConfig: enable_kv_nz is for MLA without an indexer",
    message="enable_kv_nz is a layout of MLA caches; {model} uses {attention} and the engine does not start with it.",
    fix="",
)
def nz_without_latent_attention(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The NZ cache layout on a model without MLA."""
    if resolved.model is None or resolved.model.attention == "MLA":
        return
    words = {"model": resolved.model.name, "attention": resolved.model.attention}
    for role in resolved.roles:
        place = wins(role, "enable_kv_nz")
        if role.name == "decode" and place is not None and is_true(place.value):
            yield Fact(place.path, place.value, place.removal, words)


@rule(
    "SCHED007",
    severity="error",
    evidence="check",
    source=f"{PLATFORM}: ShortRequestFirst is supported on prefill or mixed nodes",
    message="Short-request-first scheduling is not for decode; the engine does not start with it.",
    fix="",
)
def short_first_on_decode(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Short-request-first scheduling on decode."""
    for role in resolved.roles:
        place = part_is_on(role, "short_request_first_config")
        if role.name == "decode" and place is not None:
            yield Fact(place.path, place.value, place.removal)


OFFLOAD_PRECONDITIONS = (
    "vLLM Ascend 0.28 to 0.30 SparseKVOffloadConfig: sparse attention, no context parallelism, no pipeline"
)


@rule(
    "SCHED013",
    severity="error",
    evidence="check",
    source=OFFLOAD_PRECONDITIONS,
    message="Sparse KV offload is for SFA models without PCP, DCP or pipeline parallelism; {why}.",
    fix="",
)
def offload_beside_parallelism(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Sparse KV offload beside a layout or a model that it does not take."""
    for role in resolved.roles:
        place = wins(role, "sparse_kv_offload_config", "enabled")
        reasons = {
            "this model has no indexer": resolved.model is not None and resolved.model.attention != "SFA",
            "prefillContext is more than 1": role.prefill_context > 1,
            "decodeContext is more than 1": role.role.parallelism.decode_context > 1,
            "pipeline is more than 1": role.pipeline > 1,
        }
        why = ", ".join(reason for reason, holds in reasons.items() if holds)
        if place is not None and is_true(place.value) and why:
            yield Fact(place.path, place.value, place.removal, {"why": why})
