"""Before the first readiness: whether decode really continues from prefill's KV.

A P/D pair can answer fluently and wrongly. Without `/etc/hccn.conf` the transfer moves other bytes and says nothing
(vllm-ascend #7711); a lost `kv_transfer_params` makes decode do everything itself (llm-d-router #1221). So a few tokens
are generated greedily by prefill alone and by both together; they must be equal, and bytes must have moved.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from kvpp_operator.router.members import Role
    from kvpp_operator.router.steps import Members

log = logging.getLogger(__name__)

TOKENS = 8
PATIENCE = aiohttp.ClientTimeout(total=120.0)
"""First requests after a start are slow: links and operators warm up (launch facts 10.3)."""

BYTES_SECONDS = 10.0
"""The engine's metrics follow its steps with some delay."""

LOOK_SECONDS = 0.25
TRANSFERRED = re.compile(r"^vllm:mooncake_bytes_transferred_sum(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
"""vllm-ascend kv_p2p/mooncake/stats.py: a histogram on the engine that pulls."""

PROMPTS = (
    "Continue the list of numbers: " + ", ".join(map(str, range(1, 200))) + ",",
    "Continue the alphabet, again and again: " + "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 12,
    "Repeat the sentence: " + "The quick brown fox jumps over the lazy dog. " * 24,
)
"""Longer than a block of 128 tokens, and so plain that different kernels on both sides still agree on what follows."""


@dataclass(frozen=True)
class Verdict:
    passed: bool
    message: str = ""
    handover: str = "unknown"
    """`seen`, `not seen`, or `unknown` where decode does not report transfers."""


class CanaryError(Exception):
    """The hand-over does not work; the text says how it showed."""


@dataclass(frozen=True)
class Canary:
    """What a trial needs: a way to engines and proxy, and the engines' API key."""

    session: aiohttp.ClientSession
    proxy_url: str
    api_key: str = ""

    async def verdict(self, members: Members, *, through_proxy: bool) -> Verdict:
        """Try one prefill and one decode engine, then the way through the proxy if asked for. Never raises."""
        try:
            return await self._try(
                address_of(members, "prefill"), address_of(members, "decode"), through_proxy=through_proxy
            )
        except CanaryError as error:
            return Verdict(passed=False, message=str(error), handover="not seen")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, IndexError, TypeError) as error:
            return Verdict(passed=False, message=f"canary request failed: {type(error).__name__}: {error}")

    async def _try(self, prefill: str, decode: str, *, through_proxy: bool) -> Verdict:
        model = (await self._ask(prefill, "/v1/models"))["data"][0]["id"]
        before = await self.transferred(decode)
        agreed = False
        for prompt in PROMPTS:
            agreed = agreed or await self._agree(prefill, decode, model, prompt)
        if not agreed:
            raise CanaryError(
                f"decode {decode} continues the KV of prefill {prefill} with other text than prefill alone; "
                "a missing /etc/hccn.conf or cache layouts that differ do that"
            )
        handover = "unknown" if before is None else await self._moved(decode, before)
        if through_proxy:
            await self._ask(self.proxy_url, "/v1/completions", completion(model, fresh(PROMPTS[0])))
        return Verdict(passed=True, handover=handover)

    async def _agree(self, prefill: str, decode: str, model: str, prompt: str) -> bool:
        asked = completion(model, fresh(prompt))
        alone = await self._ask(prefill, "/v1/completions", asked)
        # What the proxy sends, see launch facts 5.2.
        handed = await self._ask(
            prefill,
            "/v1/completions",
            {**asked, "max_tokens": 1, "min_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}},
        )
        params = handed.get("kv_transfer_params")
        if not params:
            raise CanaryError(
                f"prefill {prefill} answers without kv_transfer_params: decode would do everything itself"
            )
        together = await self._ask(decode, "/v1/completions", {**asked, "kv_transfer_params": params})
        log.info("canary: prefill alone %r, prefill and decode %r", text_of(alone), text_of(together))
        return text_of(alone) == text_of(together)

    async def _moved(self, decode: str, before: float) -> str:
        try:
            async with asyncio.timeout(BYTES_SECONDS):
                while (await self.transferred(decode) or 0.0) <= before:  # noqa: ASYNC110 - the engine tells when asked
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise CanaryError(
                f"the texts agree, but decode {decode} fetched no KV: it computes prompts itself"
            ) from None
        return "seen"

    async def transferred(self, decode: str) -> float | None:
        """Bytes that a decode engine has fetched so far; None where it does not report that."""
        async with self.session.get(f"http://{decode}/metrics", timeout=PATIENCE) as response:
            response.raise_for_status()
            found = TRANSFERRED.findall(await response.text())
        return sum(map(float, found)) if found else None

    async def _ask(self, where: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        base = where if where.startswith("http") else f"http://{where}"
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        method = "GET" if body is None else "POST"
        async with self.session.request(method, base + path, json=body, headers=headers, timeout=PATIENCE) as response:
            if response.status != HTTPStatus.OK:
                raise CanaryError(f"{where}{path} answered {response.status}: {(await response.text())[:200]}")
            answer: dict[str, Any] = await response.json()
            return answer


def address_of(members: Members, role: Role) -> str:
    return min(member.address for member in members if member.role == role)


def fresh(prompt: str) -> str:
    """Begin as nobody has before: with a cached prefix decode would have nothing to fetch."""
    return f"[{secrets.token_hex(8)}] {prompt}"


def completion(model: str, prompt: str) -> dict[str, Any]:
    return {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "seed": 0}


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["text"]
    return text
