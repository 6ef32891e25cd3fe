"""One engine process from start to end, in the order of the real one: bind, find each other, load, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from kvpp_engine_simulator import capacity
from kvpp_engine_simulator.api import Api
from kvpp_engine_simulator.engine import Engine
from kvpp_engine_simulator.metrics import Metrics
from kvpp_engine_simulator.rendezvous import Head, RendezvousError, join
from kvpp_engine_simulator.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kvpp_engine_simulator.arguments import EngineArguments
    from kvpp_engine_simulator.settings import Settings

log = logging.getLogger(__name__)
T = TypeVar("T")

ABORT_SECONDS = 1.0
"""For handlers that are cut off when the drain's time is over."""

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 61.00 GiB total capacity; "
    "59.12 GiB already allocated; 58.90 GiB current active; 1.11 GiB free)"
)


class StartError(Exception):
    """The engine does not come up, or not any more; the text is what the real one says last."""


class Stopped(Exception):  # noqa: N818 - not an error
    """The signal came while something was still awaited."""


async def run(arguments: EngineArguments, settings: Settings) -> int:
    """Run one node rank until a signal or a failure and return the exit code."""
    node = Node(arguments, settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop.set)
    try:
        await node.run()
    except Stopped:
        log.info("stopped")
    except OSError as error:
        log.error("%s", error)  # noqa: TRY400 - the text says it all
        log.error("RuntimeError: Engine core initialization failed. See root cause above.")  # noqa: TRY400
        return 1
    except (StartError, RendezvousError) as error:
        log.error("%s", error)  # noqa: TRY400
        return 1
    return 0


@dataclass(frozen=True)
class Node:
    """One node rank. `stop` asks it to end, `started` says that it serves, or works for its head."""

    arguments: EngineArguments
    settings: Settings
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run until `stop`.

        Raises `OSError` when a port is taken, `StartError` and `RendezvousError` for other failures, `Stopped` when it
        is asked to end before it has started.
        """
        async with contextlib.AsyncExitStack() as stack:
            if self.arguments.headless:
                await self._follow(stack)
            else:
                await self._lead(stack)

    async def _lead(self, stack: contextlib.AsyncExitStack) -> None:
        """Node rank 0: the API and the schedulers."""
        # vLLM binds the API's port before the engine starts and listens on it when the engine is up.
        api_socket = stack.enter_context(bound(self.arguments.host, self.arguments.port))
        self._bind_told_ports(stack)
        ranks = Head(self.arguments) if self.arguments.parallel.nodes > 1 else None
        if ranks is not None:
            await ranks.open()
            stack.push_async_callback(ranks.close)
            await self._unless_stopped(ranks.gather(self.settings.ready_timeout_seconds))
        engine, metrics = await self._load(stack)
        keys = (self.settings.api_key, *self.arguments.api_keys)
        api = Api(self.arguments, engine, metrics, keys, self.settings.version)
        await self._serve(api, api_socket, ranks)

    async def _follow(self, stack: contextlib.AsyncExitStack) -> None:
        """Node rank above 0: workers, and schedulers of DP replicas that start here; no HTTP. Ends with its head."""
        self._bind_told_ports(stack)
        member = await self._unless_stopped(join(self.arguments, self.settings.ready_timeout_seconds))
        stack.callback(member.leave)
        workers = Workers(self.arguments.parallel.local)
        stack.push_async_callback(workers.close)
        await workers.start()
        await self._load(stack)
        log.info("node rank %d works", self.arguments.parallel.node_rank)
        self.started.set()
        raise StartError(await self._unless_stopped(first_of(member.head_gone(), workers.lose_one())))

    async def _load(self, stack: contextlib.AsyncExitStack) -> tuple[Engine, Metrics]:
        """Load the weights that are not there, then open what others connect to."""
        fault = self.settings.fault
        log.info("Starting to load model %s...", self.arguments.model)
        if fault.kind == "hang-loading":
            await self._unless_stopped(asyncio.Event().wait())
        await self._unless_stopped(asyncio.sleep(self.settings.load_seconds))
        if fault.kind == "out-of-memory":
            raise StartError(OUT_OF_MEMORY)
        size = capacity.tokens(self.arguments, self.settings)
        log.info("Available KV cache memory: %.2f GiB", self.settings.kv_gibibytes)
        log.info("GPU KV cache size: %s tokens", f"{size:,}")
        metrics = Metrics(self.arguments, size)
        engine = Engine(self.arguments, self.settings, metrics, capacity.bytes_per_token(self.arguments, self.settings))
        await engine.open()
        stack.push_async_callback(engine.close)
        return engine, metrics

    async def _serve(self, api: Api, listening: socket.socket, ranks: Head | None) -> None:
        app = api.application()
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=ABORT_SECONDS, access_log=None)
        await runner.setup()
        try:
            site = web.SockSite(runner, listening)
            await site.start()
            log.info("Application startup complete. Listening on port %d", self.arguments.port)
            self.started.set()
            await self._until_stopped_or_lost(ranks)
            await site.stop()
            log.info("Shutting down; waiting up to %g s for requests", self.arguments.shutdown_seconds)
            if not await api.drain(self.arguments.shutdown_seconds):
                log.warning("requests were aborted")
        finally:
            await runner.cleanup()

    async def _until_stopped_or_lost(self, ranks: Head | None) -> None:
        """Wait for the signal. Raises `StartError` when a rank is lost first: the engine is dead then."""
        if ranks is None:
            await self.stop.wait()
            return
        try:
            rank = await self._unless_stopped(ranks.lose_one())
        except Stopped:
            return
        raise StartError(f"EngineDeadError: worker of node rank {rank} died unexpectedly")

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T:
        """Return the result of some work. Raises `Stopped` when the signal comes first."""
        working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Stopped
            return working.result()
        finally:
            working.cancel()
            stopping.cancel()

    def _bind_told_ports(self, stack: contextlib.AsyncExitStack) -> None:
        """Bind ports beside API, master and control that this node is told to take. Raises `OSError`."""
        parallel = self.arguments.parallel
        ports: list[int] = []
        if parallel.data > 1 and parallel.nodes > 1 and parallel.node_rank == 0:  # else DP talks over ipc sockets
            ports.append(self.arguments.dp_rpc_port)
        if self.settings.hccl_base_port:
            ports += range(self.settings.hccl_base_port, self.settings.hccl_base_port + parallel.local)
        for port in ports:
            stack.enter_context(bound("0.0.0.0", port, listen=True))  # noqa: S104 - as ZMQ binds tcp://*


async def first_of(head_gone: Coroutine[object, object, None], lost_worker: Coroutine[object, object, str]) -> str:
    """Wait for what ends a headless rank and tell which of the two it was."""
    head, worker = asyncio.ensure_future(head_gone), asyncio.ensure_future(lost_worker)
    try:
        await asyncio.wait([head, worker], return_when=asyncio.FIRST_COMPLETED)
        return worker.result() if worker.done() else "the head is gone; this rank can't join again"
    finally:
        head.cancel()
        worker.cancel()


def bound(host: str, port: int, *, listen: bool = False) -> socket.socket:
    """Bind a socket. Raises `OSError` with the port in its text.

    Stricter than vLLM, whose API socket has SO_REUSEPORT: two engines of one user on one port would both start and
    share the connections. Here the second one fails, so a test sees what users would only see as wrong answers.
    """
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        if listen:
            opened.listen()
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"{error.strerror}: {host}:{port}") from None
    return opened
