"""Scheduling sizes that the engine compares at its start."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.api.base import duration_seconds, quantity_bytes
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Cel, Fact, Remove, Set, rule
from kvpp_operator.rules.given import of_role
from kvpp_operator.rules.values import is_true
from kvpp_operator.world import World

SCHEDULER = "vLLM 0.28 to 0.30 SchedulerConfig.verify_max_model_len"
DEFAULTS = "vLLM 0.28 to 0.30 EngineArgs.get_batch_defaults: before the worker knows its device, an API server's step takes 2048 tokens"
DEFAULT_STEP = 2048
"""Tokens of a step where nothing is said. Without chunked prefill vLLM raises it to the context, in throughput mode it doubles."""
SHORTEST_CONTEXT = 131072
"""Tokens. No model of the catalogue has a shorter context of its own (max_position_embeddings of their config.json)."""
ROLES = ("unified", "prefill", "decode")


def has_room(role: str) -> str:
    """CEL: a step of that role takes a token of each sequence, as far as both numbers are said."""
    sizes = f"self.{role}.scheduler"
    unsaid = f"!has(self.{role}) || !has({sizes}) || !has({sizes}.maxNumBatchedTokens) || !has({sizes}.maxNumSeqs)"
    return f"{unsaid} || {sizes}.maxNumBatchedTokens >= {sizes}.maxNumSeqs"


@rule(
    "SIZE001",
    severity="error",
    evidence="check",
    source=SCHEDULER,
    message="A step takes at least one token of each sequence: maxNumBatchedTokens must not be below maxNumSeqs.",
    fix="",
    cel=tuple(Cel(has_room(role), field_path=f".{role}.scheduler.maxNumBatchedTokens") for role in ROLES),
)
def fewer_tokens_than_sequences(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Fewer tokens in a step than sequences."""
    for role in resolved.roles:
        tokens, sequences = role.scheduler.max_num_batched_tokens, role.scheduler.max_num_seqs
        if tokens is not None and sequences is not None and tokens < sequences:
            path = f"{role.path}.scheduler.maxNumBatchedTokens"
            yield Fact(path, tokens, (Set(path, sequences),))


@rule(
    "SIZE003",
    severity="error",
    evidence="check",
    source=DEFAULTS,
    message="Without maxNumBatchedTokens a step takes {step} tokens, fewer than maxNumSeqs {value}; the engine does not start.",
    fix="or lower maxNumSeqs",
)
def more_sequences_than_the_default_step(resolved: Resolved, _: World) -> Iterator[Fact]:
    """More sequences than the default step has tokens."""
    for role in resolved.roles:
        sequences, path = role.scheduler.max_num_seqs, f"{role.path}.scheduler"
        is_said = role.scheduler.max_num_batched_tokens is not None or role.scheduler.chunked_prefill is False
        is_other = any(argument.flag in ("--performance-mode", "--all2all-backend") for argument in of_role(role))
        if sequences is not None and sequences > DEFAULT_STEP and not is_said and not is_other:
            edits = (Set(f"{path}.maxNumBatchedTokens", sequences),)
            yield Fact(f"{path}.maxNumSeqs", sequences, edits, {"step": DEFAULT_STEP})


@rule(
    "SIZE004",
    severity="error",
    evidence="check",
    source="vLLM 0.28 to 0.30 EngineArgs.create_engine_config: with LoRA a step holds each sequence with all its draft tokens",
    message="With LoRA and drafts a step holds every sequence with its draft tokens: maxNumBatchedTokens must be {value} or more.",
    fix="or lower maxNumSeqs",
)
def adapters_with_drafts(resolved: Resolved, _: World) -> Iterator[Fact]:
    """LoRA and drafts with a step that does not hold them."""
    for role in resolved.roles:
        scheduler, drafts = role.scheduler, role.speculative
        has_adapters = any(argument.flag == "--enable-lora" and is_true(argument.value) for argument in of_role(role))
        sequences, step = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
        if not has_adapters or drafts is None or sequences is None:
            continue
        needed = sequences * (drafts.tokens + 1)
        if needed > (DEFAULT_STEP if step is None else step):
            path = f"{role.path}.scheduler.maxNumBatchedTokens"
            yield Fact(path, needed, (Set(path, needed),))


@rule(
    "SIZE002",
    severity="error",
    evidence="check",
    source=SCHEDULER,
    message="Without chunked prefill a prompt must fit one step: {value} tokens in a step are fewer than {longest}.",
    fix="or raise maxNumBatchedTokens",
)
def prompt_longer_than_a_step(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A context that does not fit one step, without chunked prefill."""
    said = resolved.spec.model.max_model_len
    longest = said if said is not None else own_context(resolved)
    words = {"longest": f"maxModelLen {said}" if said is not None else f"the model's own context, {longest} or more"}
    for role in resolved.roles:
        tokens = role.scheduler.max_num_batched_tokens
        if role.scheduler.chunked_prefill is False and tokens is not None and tokens < longest:
            path = f"{role.path}.scheduler"
            yield Fact(f"{path}.maxNumBatchedTokens", tokens, (Remove(f"{path}.chunkedPrefill"),), words)


def own_context(resolved: Resolved) -> int:
    """The least that is known of the model's own context; 0 for a model that only the user knows."""
    return SHORTEST_CONTEXT if resolved.model is not None and resolved.spec.model.profile else 0


@rule(
    "SIZE005",
    severity="error",
    evidence="guide",
    source="contract, startupTimeout: the probe's budget and the engine's own limits together; Kubernetes, Probe: failureThreshold "
    "is at least 1",
    message="{value} leaves the engine no time to start: the probe and the engine's own limits end at once.",
    fix="the default follows from the model's size",
)
def no_time_to_start(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A startup budget of nothing."""
    for role in resolved.roles:
        given = role.role.startup_timeout
        if given is not None and duration_seconds(given) == 0:
            path = f"{role.path}.startupTimeout"
            yield Fact(path, given, (Remove(path),))


HUGE_PAGE_MIB = 2


@rule(
    "SIZE006",
    severity="error",
    evidence="guide",
    source="Kubernetes, Manage HugePages: an amount of hugepages-2Mi is a whole number of pages, else the API server refuses the pod",
    message="Huge pages have 2Mi each, and {value} is no whole number of them; the API server refuses the pods.",
    fix="",
)
def no_whole_pages(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An amount of huge pages that is no whole number of pages."""
    given = {"spec": resolved.spec.accelerator.huge_pages}
    given |= {role.path: role.role.accelerator.huge_pages for role in resolved.roles if role.role.accelerator}
    page = HUGE_PAGE_MIB * 2**20
    for owner, amount in given.items():
        if amount is not None and (quantity_bytes(amount) % page or amount.endswith("m")):
            pages = max(1, round(quantity_bytes(amount) / page))
            path = f"{owner}.accelerator.hugePages"
            yield Fact(path, amount, (Set(path, f"{pages * HUGE_PAGE_MIB}Mi"),))


LEAST_SHARED = 2**20


@rule(
    "SIZE007",
    severity="error",
    evidence="guide",
    source="Kubernetes, Quantity: `m` is a thousandth, `Mi` a mebibyte, and no suffix a byte; processes of an engine share memory",
    message="{value} is {bytes} bytes: too little to share anything in. For mebibytes Kubernetes writes Mi.",
    fix="",
)
def next_to_no_memory(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An amount of memory in thousandths of bytes, or in bytes."""
    given = {f"{role.path}.sharedMemory": role.role.shared_memory for role in resolved.roles}
    pooling = resolved.spec.pooling
    for name, pool in (("memcache", pooling.memcache), ("mooncake", pooling.mooncake)) if pooling else ():
        given |= {f"spec.pooling.{name}.memoryPerDevice": pool.memory_per_device} if pool else {}
    for path, amount in given.items():
        if amount is not None and quantity_bytes(amount) < LEAST_SHARED:
            meant = f"{amount[:-1]}Mi" if amount.endswith("m") else ""
            fits = meant and quantity_bytes(meant) >= LEAST_SHARED
            yield Fact(path, amount, (Set(path, meant) if fits else Remove(path),), {"bytes": quantity_bytes(amount)})
