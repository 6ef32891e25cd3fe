"""The front alone, with an upstream of our own behind it: bytes, headers, back-pressure, broken answers."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from kvpp_engine_simulator.local import LOOPBACK, free_ports
from yarl import URL

from kvpp_operator.router.agent import listening, session
from kvpp_operator.router.front import Front
from kvpp_operator.router.gate import Gate
from kvpp_operator.router.metrics import Metrics
from kvpp_operator.router.settings import Settings
from kvpp_operator.router.standing import SERVING, Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BODY = b"x" * 900_000


@asynccontextmanager
async def front(handler: Handler) -> AsyncIterator[str]:
    """The address of a front whose upstream answers with the handler."""
    ports = free_ports(2)
    settings = Settings(
        namespace="n", deployment="d", listen=f"{LOOPBACK}:{ports}", proxy=f"http://{LOOPBACK}:{ports + 1}"
    )
    upstream = web.Application(client_max_size=0)
    upstream.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(upstream, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, ports + 1).start()
    gate = Gate(lambda: None)
    gate.set(SERVING)
    async with session() as to_proxy:
        door = Front(
            to_proxy, settings, gate, Metrics(),
            report=lambda: Report(SERVING, "a", frozenset(), "seen"), proxy_is_well=lambda: False,
        )  # fmt: skip
        async with listening(door, settings):
            yield f"http://{settings.listen}"
    await runner.cleanup()


async def test_bodies_and_headers_pass_unchanged(http: aiohttp.ClientSession) -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.extend((request.headers, request.method, request.raw_path, await request.read()))
        headers = {"X-Engine": "d0", "Content-Encoding": "gzip", "Connection": "X-Hop", "X-Hop": "1"}
        return web.Response(body=gzip.compress(b"answer"), headers=headers)

    async with front(handler) as url:
        headers = {
            "Authorization": "Bearer theirs",
            "X-Request-Id": "r1",
            "Accept-Encoding": "gzip",
            "Connection": "X-Own",
            "X-Own": "1",
        }
        async with http.post(
            URL(f"{url}/v1/completions?a=%2F&b", encoded=True), data=BODY, headers=headers
        ) as response:
            assert await response.read() == b"answer"
            assert response.headers["X-Engine"] == "d0"
            assert "X-Hop" not in response.headers
    arrived, *rest = seen
    assert rest == ["POST", "/v1/completions?a=%2F&b", BODY]
    assert (arrived["X-Request-Id"], arrived["Content-Length"]) == ("r1", str(len(BODY)))
    assert "Authorization" not in arrived  # the proxy has a key of its own for the engines
    assert "X-Own" not in arrived


async def test_a_request_without_an_id_gets_one(http: aiohttp.ClientSession) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=request.headers["X-Request-Id"])

    async with front(handler) as url:
        ids = []
        for _ in range(2):
            async with http.get(f"{url}/v1/models") as response:
                ids.append(await response.text())
        assert len(set(ids)) == 2


async def test_the_engines_status_is_the_callers(http: aiohttp.ClientSession) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"error": "too long"}, status=400)

    async with front(handler) as url, http.post(f"{url}/v1/completions", json={}) as response:
        assert (response.status, await response.json()) == (400, {"error": "too long"})


async def test_nobody_behind_it_is_a_bad_gateway(http: aiohttp.ClientSession) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with front(handler) as url, http.post(f"{url}/v1/completions", json={}) as response:
        assert response.status == 502
        assert (await response.json())["error"]["type"] == "ProxyError"


async def test_an_answer_that_breaks_off_does_not_look_whole(http: aiohttp.ClientSession) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: half\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with front(handler) as url:
        with pytest.raises(aiohttp.ClientError):
            async with http.post(f"{url}/v1/completions", json={}) as response:
                await response.read()


async def test_a_slow_caller_slows_the_engine(http: aiohttp.ClientSession) -> None:
    """Nothing piles up in the router: what the caller does not take stays with the engine."""
    written, total = 0, 256

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(total):
            await response.write(b"x" * 2**20)
            written += 1
        return response

    async with front(handler) as url, http.post(f"{url}/v1/completions", json={}) as response:
        before = -1
        while written != before:  # until it stands still
            before = written
            await asyncio.sleep(0.3)
        assert written < total / 4
        size = 0
        async for piece in response.content.iter_any():
            size += len(piece)
        assert size == total * 2**20


async def test_who_hangs_up_ends_the_work(http: aiohttp.ClientSession) -> None:
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return response

    async with front(handler) as url:
        async with http.post(f"{url}/v1/completions", json={}) as response:
            await response.content.readany()
        async with asyncio.timeout(30):
            await ended.wait()


async def test_the_front_answers_for_the_proxy(http: aiohttp.ClientSession) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response()

    async with front(handler) as url:
        seen = {}
        for path in ("/livez", "/livez/proxy", "/readyz"):
            async with http.get(url + path) as response:
                seen[path] = response.status
        assert seen == {"/livez": 200, "/livez/proxy": 503, "/readyz": 200}
