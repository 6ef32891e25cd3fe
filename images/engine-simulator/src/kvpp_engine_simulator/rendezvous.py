"""How the nodes of one engine find each other: the head's master port, once.

Torch's store waits for all ranks and a lost rank ends the whole engine; a rank can't join again. So does this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvpp_engine_simulator.arguments import EngineArguments, Json

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2


class RendezvousError(Exception):
    """The ranks did not come together, or one of them is gone."""


class Head:
    """Node rank 0: waits for all others, then watches them."""

    def __init__(self, arguments: EngineArguments) -> None:
        self._port = arguments.master_port
        self._nodes = arguments.parallel.nodes
        self._common = arguments.common
        self._ranks: dict[int, asyncio.StreamWriter] = {}
        self._joined = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._lost: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Bind the master port, on every address as torch's store does. Raises `OSError` when somebody has it."""
        self._server = await asyncio.start_server(self._serve, "0.0.0.0", self._port)  # noqa: S104

    async def gather(self, timeout_seconds: float) -> None:
        """Wait until every rank is there. Raises `RendezvousError`."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._joined.wait()
        except TimeoutError:
            missing = sorted(set(range(1, self._nodes)) - self._ranks.keys())
            raise RendezvousError(
                f"Timed out after {timeout_seconds:g} seconds waiting for node ranks {missing}"
            ) from None
        for writer in self._ranks.values():
            writer.write(b"go\n")

    async def lose_one(self) -> int:
        """Wait until a rank that had joined is gone and return its number."""
        return await self._lost

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._ranks.values():
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank = await self._register(reader, writer)
        if rank is None:
            writer.close()
            return
        log.info("node rank %d joined, %d of %d nodes", rank, len(self._ranks) + 1, self._nodes)
        if len(self._ranks) == self._nodes - 1:
            self._joined.set()
        await reader.read()
        if not self._lost.done():
            self._lost.set_result(rank)

    async def _register(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int | None:
        try:
            hello: Json = json.loads(await reader.readline())
            rank = int(hello["rank"])
        except (ValueError, KeyError, TypeError, ConnectionError):
            return None  # a probe that only opens the port
        if not 0 < rank < self._nodes or rank in self._ranks:
            log.error("node rank %d of %d is taken or out of range", rank, self._nodes)
            return None
        if hello.get("common") != self._common:
            log.error("node rank %d was started with other arguments: %s", rank, hello.get("common"))
            return None
        self._ranks[rank] = writer
        return rank


@dataclass(frozen=True)
class Membership:
    """A headless rank's connection to its head."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head_gone(self) -> None:
        """Return when the head has ended."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()

    def leave(self) -> None:
        self.writer.close()


async def join(arguments: EngineArguments, timeout_seconds: float) -> Membership:
    """Let a headless rank in: try until the head is there, then wait for all others. Raises `RendezvousError`."""
    where = f"{arguments.master_address}:{arguments.master_port}"
    hello = {"rank": arguments.parallel.node_rank, "common": arguments.common}
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                try:
                    reader, writer = await asyncio.open_connection(arguments.master_address, arguments.master_port)
                except OSError:  # the head is not up, or its name is not in DNS yet
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                writer.write(json.dumps(hello).encode() + b"\n")
                if await reader.readline() == b"go\n":
                    return Membership(reader, writer)
                writer.close()
                raise RendezvousError(f"{where} refused node rank {arguments.parallel.node_rank}")
    except TimeoutError:
        raise RendezvousError(f"Timed out after {timeout_seconds:g} seconds joining {where}") from None
