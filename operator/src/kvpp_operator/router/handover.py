"""Whether KV goes on moving while requests do: decode engines count the bytes that they fetch."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvpp_operator.router.canary import Canary
    from kvpp_operator.router.gate import Gate
    from kvpp_operator.router.steps import Members

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
ENOUGH_REQUESTS = 5
"""Fewer may all have been refused, or found their prefix cached."""


def judge(before: dict[str, float], after: dict[str, float], requests: int) -> str:
    """`seen`, `not seen` or `unknown`, from bytes by decode engine at two moments and the requests in between."""
    both = [address for address in before.keys() & after.keys() if after[address] >= before[address]]  # else restarted
    if any(after[address] > before[address] for address in both):
        return "seen"
    return "not seen" if both and requests >= ENOUGH_REQUESTS else "unknown"


async def observe(canary: Canary, gate: Gate, serving: Callable[[], Members], found: Callable[[str], None]) -> None:
    """Tell what was found, every half minute, for ever."""
    before, requests = await transferred(canary, serving()), gate.inside.total
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        after, now = await transferred(canary, serving()), gate.inside.total
        verdict = judge(before, after, now - requests)
        if verdict != "unknown":
            found(verdict)
        if verdict == "not seen":
            log.error("%d requests, but no decode engine fetched KV", now - requests)
        before, requests = after, now


async def transferred(canary: Canary, members: Members) -> dict[str, float]:
    found = {}
    for address in sorted(member.address for member in members if member.role == "decode"):
        try:
            amount = await canary.transferred(address)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.info("metrics of %s: %s", address, error)
            continue
        if amount is not None:
            found[address] = amount
    return found
