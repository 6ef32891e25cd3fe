"""The router's agent as a process: its parts put together, from start to SIGTERM to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from kvpp_operator import names
from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.router import handover
from kvpp_operator.router.canary import Canary
from kvpp_operator.router.conductor import Conductor
from kvpp_operator.router.front import Front
from kvpp_operator.router.gate import Gate
from kvpp_operator.router.health import Watchman
from kvpp_operator.router.members import ROLES
from kvpp_operator.router.metrics import Metrics
from kvpp_operator.router.proxy import Proxy
from kvpp_operator.router.reporter import Reporter
from kvpp_operator.router.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kvpp_operator.router.settings import Settings

log = logging.getLogger(__name__)

ABORT_SECONDS = 1.0
"""For handlers that are cut off when the shutdown's time is over."""


def run_agent(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the exit code. Raises `KubeconfigError` when there is no way to an API server."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return asyncio.run(run(settings, Access(load)))


async def run(settings: Settings, access: Access) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop, lambda conductor: cluster_jobs(settings, access, conductor))
    return 0


Jobs = list[Coroutine[None, None, None]]
"""What runs beside the listener, each for ever."""


async def serve(settings: Settings, stop: asyncio.Event, informed: Callable[[Conductor], Jobs]) -> None:
    """Listen until `stop` and to the last answer. `informed`: jobs that tell the conductor about the cluster."""
    changed, metrics = asyncio.Event(), Metrics()
    gate = Gate(changed.set)
    async with session() as to_proxy, session() as to_engines:
        proxy, watchman = (
            Proxy(to_proxy, settings.proxy),
            Watchman(to_engines, changed.set, settings.policy.look_seconds),
        )
        canary = Canary(to_engines, settings.proxy, settings.api_key)
        conductor = Conductor(settings, proxy, watchman, canary, gate=gate, metrics=metrics, changed=changed)
        jobs: Jobs = [
            *informed(conductor),
            proxy.watch(conductor.proxy_seen),
            conductor.conduct(),
            handover.observe(canary, gate, lambda: conductor.serving, conductor.handover_seen),
        ]
        front = Front(to_proxy, settings, gate, metrics, report=conductor.report, proxy_is_well=conductor.proxy_is_well)
        running = [asyncio.create_task(job) for job in jobs]
        try:
            async with listening(front, settings) as site:
                await stop_or_failure(stop, running)
                await leave(site, settings, gate, conductor)
        finally:
            for job in running:
                job.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await watchman.close()


def cluster_jobs(settings: Settings, access: Access, conductor: Conductor) -> Jobs:
    jobs: Jobs = [slices_watch(settings, access).follow(conductor.slices_seen)]
    if settings.service:
        jobs.append(service_watch(settings, access).follow(conductor.service_seen))
    if settings.report:
        reporter = Reporter(access, settings.namespace, settings.report, settings.pod)
        conductor.published = reporter.publish
        jobs.append(reporter.write())
    return jobs


def session() -> aiohttp.ClientSession:
    """No limits, no proxies, nothing unpacked: what comes in goes out."""
    connector = aiohttp.TCPConnector(limit=0)
    automatic = ("User-Agent", "Accept-Encoding")
    return aiohttp.ClientSession(connector=connector, auto_decompress=False, skip_auto_headers=automatic)


@contextlib.asynccontextmanager
async def listening(front: Front, settings: Settings) -> AsyncIterator[web.TCPSite]:
    app = front.application()
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=ABORT_SECONDS, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, *settings.address)
        await site.start()
        yield site
    finally:
        await runner.cleanup()


async def stop_or_failure(stop: asyncio.Event, running: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the signal. Raises what a job died of: none of them ever ends."""
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for job in running:
        if job.done():
            job.result()


async def leave(site: web.TCPSite, settings: Settings, gate: Gate, conductor: Conductor) -> None:
    """Nodes hear of our leaving one after the other; until then they send requests, and those are answered."""
    conductor.stop()
    await asyncio.sleep(settings.drain_delay_seconds)
    await site.stop()
    if not await gate.inside.empties_within(settings.shutdown_seconds):
        log.warning("%d requests are cut off after %g s", gate.inside.present, settings.shutdown_seconds)


def slices_watch(settings: Settings, access: Access) -> Watch:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{settings.namespace}/endpointslices"
    labels = f"{names.DEPLOYMENT}={settings.deployment},{names.ROLE} in ({','.join(ROLES)}),{names.REVISION}"
    return Watch(access, path, labels=labels)


def service_watch(settings: Settings, access: Access) -> Watch:
    path = f"/api/v1/namespaces/{settings.namespace}/services"
    return Watch(access, path, fields=f"metadata.name={settings.service}")
