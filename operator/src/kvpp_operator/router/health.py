"""Our own eyes: a look at each head's `/health` every second."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp

from kvpp_operator.router.members import UNSEEN, Health

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kvpp_operator.router.members import Endpoint, Outcome

PATIENCE = aiohttp.ClientTimeout(total=5.0)


class Watchman:
    """Looks at every endpoint it is told about, each at its own pace: a silent one delays nobody else."""

    def __init__(self, session: aiohttp.ClientSession, noticed: Callable[[], None], every_seconds: float) -> None:
        self._session = session
        self._noticed = noticed
        self._every_seconds = every_seconds
        self._rounds: dict[Endpoint, asyncio.Task[None]] = {}
        self.health: dict[Endpoint, Health] = {}

    def look_at(self, endpoints: Collection[Endpoint]) -> None:
        """From now on exactly these. Who was away starts from nothing."""
        for gone in self._rounds.keys() - endpoints:
            self._rounds.pop(gone).cancel()
            self.health.pop(gone, None)
        for new in endpoints - self._rounds.keys():
            self._rounds[new] = asyncio.create_task(self._round(new))

    async def close(self) -> None:
        rounds = list(self._rounds.values())
        self.look_at(frozenset())
        await asyncio.gather(*rounds, return_exceptions=True)

    async def _round(self, endpoint: Endpoint) -> None:
        while True:
            outcome = await look(self._session, endpoint.member.address)
            self.health[endpoint] = self.health.get(endpoint, UNSEEN).after(outcome, time.monotonic())
            self._noticed()
            await asyncio.sleep(self._every_seconds)


async def look(session: aiohttp.ClientSession, address: str) -> Outcome:
    try:
        async with session.get(f"http://{address}/health", timeout=PATIENCE) as response:
            return "ok" if response.status == HTTPStatus.OK else "refused"  # 503: the engine core is dead
    except TimeoutError:
        return "silent"
    except (aiohttp.ClientError, OSError):
        return "refused"
