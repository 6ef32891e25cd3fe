"""Many requests at once, each with its end; and who stands behind the routers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from e2e.serving import HANDED_OVER, chat, members

if TYPE_CHECKING:
    from e2e.place import Place

AT_ONCE = 20


@dataclass(frozen=True)
class Answered:
    began: float
    failure: str
    """Empty when the answer came, and by way of prefill and decode."""


async def keep_asking(http: aiohttp.ClientSession, url: str, answered: list[Answered], enough: asyncio.Event) -> None:
    """Ask without a pause, `AT_ONCE` at a time. The last answers are waited for: KV that nobody fetches holds up prefill's end."""

    async def ask_on() -> None:
        while not enough.is_set():
            began = time.monotonic()
            answered.append(Answered(began, await failure_of(http, url)))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(ask_on())


async def failure_of(http: aiohttp.ClientSession, url: str) -> str:
    try:
        text = await chat(http, url)
    except (AssertionError, aiohttp.ClientError, TimeoutError) as error:
        return repr(error)
    return "" if HANDED_OVER.search(text) else text


async def until_members(place: Place, namespace: str, name: str, wanted: dict[str, int], *, seconds: float) -> None:
    """Wait until every router pod has these engines behind it."""
    routers = f"serving.kvpp.io/deployment={name},app.kubernetes.io/component=router"
    addresses = [pod["status"]["podIP"] for pod in place.pods(namespace, routers)]

    def look() -> bool:
        return all(members(address) == wanted for address in addresses)

    await asyncio.to_thread(place.until, f"routers have {wanted} behind them", look, seconds=seconds, poll_seconds=0.1)
