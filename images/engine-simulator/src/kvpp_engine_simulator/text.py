"""Words instead of a model: greedy, so that the same prompt always gets the same continuation.

An answer is eight words that follow from the KV cache alone, then one sentence of proof. A canary of up to eight tokens
thus compares prefill alone with prefill and decode; whoever asks for more reads which engine did what.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

CONTENT_TOKENS = 8
VOCABULARY = [
    "amber",
    "basalt",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "granite",
    "harbor",
    "indigo",
    "juniper",
    "kelp",
    "lagoon",
    "maple",
    "nectar",
    "opal",
    "pebble",
    "quartz",
    "raven",
    "saffron",
    "tundra",
    "umber",
    "violet",
    "willow",
    "xenon",
    "yarrow",
    "zephyr",
    "acorn",
    "birch",
    "coral",
    "dune",
    "elm",
    "fern",
]
TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class KvCache:
    """What prefill made of a prompt: how many tokens, and a digest that stands for their keys and values."""

    tokens: int
    digest: str

    def garbled(self) -> KvCache:
        """Return the cache after a transfer that moved the wrong bytes."""
        return KvCache(self.tokens, self.digest[::-1])


def count(text: str) -> int:
    """Tokens of a text: words and punctuation."""
    return len(TOKEN.findall(text))


def prefill(prompt: str) -> KvCache:
    return KvCache(count(prompt), hashlib.sha256(prompt.encode()).hexdigest())


def content(cache: KvCache) -> list[str]:
    """Continue greedily: a pure function of the cache."""
    drawn = hashlib.sha256(cache.digest.encode()).digest()
    return [VOCABULARY[byte % len(VOCABULARY)] for byte in drawn[:CONTENT_TOKENS]]


@dataclass(frozen=True)
class Origin:
    """Which engine computed the KV that an answer is decoded from."""

    decoded_by: str
    prefilled_by: str
    handed_over: bool = False
    """False with two engines: the hand-over failed and decode computed everything again."""

    def sentence(self, tokens: int) -> str:
        if self.prefilled_by == self.decoded_by:
            return f"[prefilled and decoded by {self.decoded_by}]"
        if not self.handed_over:
            return f"[hand-over from {self.prefilled_by} failed, recomputed by {self.decoded_by}]"
        return f"[KV of {tokens} tokens handed over from {self.prefilled_by} to {self.decoded_by}]"


def answer(cache: KvCache, origin: Origin) -> list[str]:
    """List all tokens that would be generated without a limit; joined by blanks they are the answer."""
    return [*content(cache), *origin.sentence(cache.tokens).split()]
