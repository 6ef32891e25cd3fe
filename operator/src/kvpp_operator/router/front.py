"""The only listener of the router: `/v1/*` to the proxy, byte by byte; probes and metrics; nothing else."""

from __future__ import annotations

import hmac
import time
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvpp_operator.router.gate import Gate
    from kvpp_operator.router.metrics import Metrics
    from kvpp_operator.router.settings import Settings
    from kvpp_operator.router.standing import Report

CHUNK_LIMIT = 2**16
"""Bytes that are read ahead of a slow client; beyond them the engine waits (back-pressure)."""

PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
"""A long prompt may take minutes to its first token, so there is no limit on the answer."""

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
    )
)
"""RFC 9110, 7.6.1: about one connection, not about the message."""

KNOWN_PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/models")
"""Metrics name these; any other path is `other`, so that callers can't make labels."""


class Front:
    """`report` tells what /readyz says, `proxy_is_well` what the proxy's own probe does.

    With an API key in the settings only its bearers come in.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        settings: Settings,
        gate: Gate,
        metrics: Metrics,
        *,
        report: Callable[[], Report],
        proxy_is_well: Callable[[], bool],
    ) -> None:
        self._session, self._proxy_url = session, settings.proxy.rstrip("/")
        self._gate, self._metrics = gate, metrics
        self._report, self._proxy_is_well = report, proxy_is_well
        self._key = settings.api_key.encode()
        self._hold_seconds = settings.hold_seconds

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/livez", self.livez)
        app.router.add_get("/livez/proxy", self.proxy_livez)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_route("*", "/v1/{path:.*}", self.forward)
        app.router.add_route("*", "/{path:.*}", self.refuse)
        return app

    async def livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def proxy_livez(self, _: web.Request) -> web.Response:
        """Answer for the proxy, which listens on loopback only."""
        if self._proxy_is_well():
            return web.Response(text="ok\n")
        return web.Response(text="the P/D proxy does not answer\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def readyz(self, _: web.Request) -> web.Response:
        report = self._report()
        status = HTTPStatus.OK if report.standing.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return web.json_response(text=report.text(), status=status)

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def refuse(self, request: web.Request) -> web.Response:
        """Refuse the proxy's admin paths (`/instances/…`, `/reset_prefix_cache`) and anything unknown."""
        self._metrics.refused.labels("path").inc()
        return error(
            HTTPStatus.NOT_FOUND, "NotFoundError", f"{request.path} is not served here; this router passes /v1/ on"
        )

    async def forward(self, request: web.Request) -> web.StreamResponse:
        started = time.monotonic()
        path = request.path if request.path in KNOWN_PATHS else "other"
        response = await self._answer(request, path, started)
        self._metrics.requests.labels(path, str(response.status)).inc()
        self._metrics.seconds.labels(path).observe(time.monotonic() - started)
        return response

    async def _answer(self, request: web.Request, path: str, started: float) -> web.StreamResponse:
        if ".." in request.path.split("/"):  # a client library would fold it into an admin path
            return await self.refuse(request)
        if not self._knows(request.headers.get("Authorization", "")):
            self._metrics.refused.labels("key").inc()
            return web.json_response({"error": "Unauthorized"}, status=HTTPStatus.UNAUTHORIZED)  # vLLM's own words
        with self._metrics.held.track_inprogress():
            is_open = await self._gate.opens_within(self._hold_seconds)
        if not is_open:
            standing = self._gate.standing
            self._metrics.refused.labels("not ready").inc()
            return error(
                HTTPStatus.SERVICE_UNAVAILABLE,
                standing.reason.value,
                standing.message or "the router is not ready",
                retry=5,
            )
        with self._metrics.active.track_inprogress(), self._gate.inside.visit():
            return await self._pass(request, path, started)

    def _knows(self, authorization: str) -> bool:
        given = authorization.removeprefix("Bearer ").encode()
        return not self._key or hmac.compare_digest(given, self._key)

    async def _pass(self, request: web.Request, path: str, started: float) -> web.StreamResponse:
        url = URL(self._proxy_url + request.raw_path, encoded=True)
        try:
            with self._gate.unanswered.visit():
                upstream = await self._session.request(
                    request.method,
                    url,
                    headers=outgoing(request.headers),
                    data=request.content if request.body_exists else None,
                    timeout=PATIENCE,
                    allow_redirects=False,
                    read_bufsize=CHUNK_LIMIT,
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            return error(
                HTTPStatus.BAD_GATEWAY, "ProxyError", f"the P/D proxy did not answer: {type(problem).__name__}"
            )
        async with upstream:
            self._metrics.first_byte.labels(path).observe(time.monotonic() - started)
            response = web.StreamResponse(
                status=upstream.status, reason=upstream.reason, headers=incoming(upstream.headers)
            )
            await response.prepare(request)
            try:
                async for chunk in upstream.content.iter_any():
                    await response.write(chunk)
            except (aiohttp.ClientError, OSError):
                # The answer is incomplete and the client must see that: no clean end of the stream.
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response


def outgoing(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Headers for the proxy: without the caller's key, since it has its own, and with an id to be found by in logs."""
    kept = passed_on(headers, but=("authorization", "expect"))
    kept.setdefault("X-Request-Id", str(uuid.uuid4()))
    return kept


def incoming(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return passed_on(headers, but=("server", "date"))


def passed_on(headers: Mapping[str, str], *, but: tuple[str, ...]) -> CIMultiDict[str]:
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    left_out = HOP_BY_HOP | named | set(but)
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in left_out)


def error(status: HTTPStatus, kind: str, message: str, *, retry: int = 0) -> web.Response:
    """Write an error in OpenAI's form."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": int(status)}}
    return web.json_response(body, status=status, headers={"Retry-After": str(retry)} if retry else None)
