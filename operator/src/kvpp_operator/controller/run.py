"""The operator as a process: credentials, client, cache, queue, watches and probes, wired together and ended in order.

Nothing is looked at before the cache holds all that exists, so that absence in the cache means absence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.cache import Cache
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.controller.feed import Feed
from kvpp_operator.controller.metrics import Metrics
from kvpp_operator.controller.queue import WorkQueue
from kvpp_operator.controller.serve import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvpp_operator.manifest import DeploymentKey

logger = logging.getLogger(__name__)


class Reconcile(Protocol):
    """One look at one deployment: seconds until the next, or None when only an event can change anything."""

    async def __call__(self, key: DeploymentKey, cache: Cache, cluster: Cluster) -> float | None: ...


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a process of the operator is told from outside."""

    kubeconfig: str | None = None  # a file; default: KUBECONFIG, the pod's service account, ~/.kube/config
    context: str | None = None
    namespaces: tuple[str, ...] = ()  # none: the whole cluster
    listen: str = "0.0.0.0:8080"  # probes come from outside the pod
    workers: int = 8
    concurrency: int = 12
    reconcile_seconds: float = 120.0  # then a look is given up, and tried again
    resync_seconds: float = 600.0
    grace_seconds: float = 3.5  # for the looks in flight at the end
    listening: Callable[[str, int], None] = field(default=lambda *_: None)  # told the address of the probes


async def run(reconcile: Reconcile, settings: RunSettings) -> None:
    """Run until SIGTERM or SIGINT, then end in order.  Raises what makes going on impossible."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await operate(reconcile, settings, stop)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def operate(reconcile: Reconcile, settings: RunSettings, stop: asyncio.Event) -> None:
    """Run until `stop` is set, for a process that handles signals itself, and for tests."""
    access = Access(lambda: load(settings.kubeconfig, context=settings.context))
    cache = Cache()
    metrics = Metrics(cache)
    async with Cluster(access, concurrency=settings.concurrency, observe=metrics.requested) as cluster:

        async def look(key: DeploymentKey) -> float | None:
            async with asyncio.timeout(settings.reconcile_seconds):
                return await reconcile(key, cache, cluster)

        def looked(key: DeploymentKey, seconds: float, error: Exception | None, retry_seconds: float) -> None:
            metrics.reconciled(seconds, error)
            _log_look(key, seconds, error, retry_seconds)

        queue = WorkQueue(look, workers=settings.workers, observe=looked)
        feed = Feed(
            access=access,
            cluster=cluster,
            cache=cache,
            queue=queue,
            metrics=metrics,
            namespaces=settings.namespaces,
        )
        metrics.state.queue = queue
        async with Server(settings.listen, metrics.registry, feed.problems) as server:
            settings.listening(*server.address)
            logger.info("started", extra={"server": access.credentials.server, "pid": os.getpid()})
            await _until(stop, feed, queue, settings)
    logger.info("stopped")


async def _until(stop: asyncio.Event, feed: Feed, queue: WorkQueue[DeploymentKey], settings: RunSettings) -> None:
    async def work() -> None:
        await feed.synchronised.wait()
        await queue.run()

    stopping = asyncio.create_task(stop.wait(), name="stop")
    working = asyncio.create_task(work(), name="work queue")
    watching = asyncio.create_task(feed.run(), name="watches")
    resync = asyncio.create_task(_resync(feed, settings.resync_seconds), name="resync")
    try:
        done, _ = await asyncio.wait({stopping, working, watching, resync}, return_when=asyncio.FIRST_COMPLETED)
        logger.info("stopping", extra={"running": queue.busy, "waiting": len(queue)})
        queue.stop()
        resync.cancel()
        watching.cancel()  # the looks in flight need no more news
        await asyncio.wait(
            {working, watching} if feed.synchronised.is_set() else {watching}, timeout=settings.grace_seconds
        )
        for task in done:
            task.result()  # raises what ended it
    finally:
        for task in (stopping, working, watching, resync):
            task.cancel()
        await asyncio.gather(stopping, working, watching, resync, return_exceptions=True)


async def _resync(feed: Feed, seconds: float) -> None:
    """Compare all with the API server, and look at all, once in a while: the safety net of a level-triggered loop."""
    await feed.synchronised.wait()
    while True:
        await asyncio.sleep(seconds * random.uniform(0.9, 1.1))  # noqa: S311 - spreads load
        with contextlib.suppress(ClusterError):
            await feed.resync(spread_seconds=seconds / 10)


def _log_look(key: DeploymentKey, seconds: float, error: Exception | None, retry_seconds: float) -> None:
    about = {"deployment": str(key), "seconds": round(seconds, 4)}
    if error is None:
        logger.debug("reconciled", extra=about)
        return
    about |= {"retry_seconds": round(retry_seconds, 2)}
    if isinstance(error, ClusterError):
        logger.warning("not reconciled: %s", error.message, extra=about)
    elif isinstance(error, TimeoutError):
        logger.warning("not reconciled in time", extra=about)
    else:
        logger.error("not reconciled: an error of ours", extra=about, exc_info=error)
