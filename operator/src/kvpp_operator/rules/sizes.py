"""Scheduling sizes that the engine compares at its start."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Cel, Fact, Remove, Set, rule
from kvpp_operator.world import World

SCHEDULER = "vLLM 0.28 to 0.30 SchedulerConfig.verify_max_model_len"
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
    "SIZE002",
    severity="error",
    evidence="check",
    source=SCHEDULER,
    message="Without chunked prefill a prompt must fit one step: {value} tokens in a step are fewer than maxModelLen {longest}.",
    fix="or raise maxNumBatchedTokens",
)
def prompt_longer_than_a_step(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A context that does not fit one step, without chunked prefill."""
    longest = resolved.spec.model.max_model_len
    for role in resolved.roles:
        tokens = role.scheduler.max_num_batched_tokens
        if role.scheduler.chunked_prefill is False and tokens is not None and longest is not None and tokens < longest:
            path = f"{role.path}.scheduler"
            yield Fact(f"{path}.maxNumBatchedTokens", tokens, (Remove(f"{path}.chunkedPrefill"),), {"longest": longest})
