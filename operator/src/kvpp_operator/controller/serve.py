"""`/healthz`, `/readyz` and `/metrics` for the kubelet and Prometheus.

Alive is who answers: the event loop runs.  An API server that is away makes us unready, never dead: a restart would
not bring it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry


class Server:
    """Use as `async with Server(...)`.  `problems` says in words why we are not ready; nothing means ready."""

    def __init__(self, listen: str, registry: CollectorRegistry, problems: Callable[[], tuple[str, ...]]) -> None:
        self._host, _, port = listen.rpartition(":")
        self._port = int(port)
        self._registry = registry
        self._problems = problems
        app = web.Application()
        app.add_routes(
            [web.get("/healthz", self._health), web.get("/readyz", self._ready), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; port 0 asks the system for one."""
        host, port = self._runner.addresses[0][:2]
        return host, port

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host.strip("[]") or None, self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _ready(self, _: web.Request) -> web.Response:
        problems = self._problems()
        return web.json_response({"ready": not problems, "problems": problems}, status=503 if problems else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
