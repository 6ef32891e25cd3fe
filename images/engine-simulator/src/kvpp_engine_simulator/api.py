"""The HTTP face: routes, key, draining. Paths and answers are vLLM's (launch facts 10.1)."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from kvpp_engine_simulator import completions
from kvpp_engine_simulator.completions import BadRequest
from kvpp_engine_simulator.engine import LoadError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kvpp_engine_simulator.arguments import EngineArguments, Json
    from kvpp_engine_simulator.engine import Engine
    from kvpp_engine_simulator.metrics import Metrics

GUARDED = ("/v1", "/v2", "/inference")
BODY_LIMIT = 64 * 2**20


class Api:
    """Handlers of one engine. `drain` ends it: what runs may finish, nothing new comes in."""

    def __init__(
        self, arguments: EngineArguments, engine: Engine, metrics: Metrics, keys: tuple[str, ...], version: str
    ) -> None:
        self._arguments, self._engine, self._metrics = arguments, engine, metrics
        self._keys = tuple(key.encode() for key in keys if key)
        self._version = version
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_LIMIT, middlewares=[self._guard])
        for method in ("GET", "POST"):
            app.router.add_route(method, "/ping", self.health)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/version", self.version)
        app.router.add_get("/load", self.load)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/chat/completions", self.chat_completions)
        return app

    async def drain(self, timeout_seconds: float) -> bool:
        """Stop taking requests, wait for those that run and for decode to fetch what is kept; False when time was too short."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
                await self._engine.fetched()
        return self._active == 0 and self._engine.kept == 0

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        await self._engine.stuck()
        if request.path.startswith(GUARDED) and not self._knows(request.headers.get("Authorization", "")):
            return web.json_response({"error": "Unauthorized"}, status=HTTPStatus.UNAUTHORIZED)
        try:
            return await handler(request)
        except BadRequest as error:
            return web.json_response(error.body, status=error.status)
        except LoadError:
            # The cause stands in the log only, as with vLLM.
            body = completions.error_body(
                "Internal server error", "InternalServerError", HTTPStatus.INTERNAL_SERVER_ERROR
            )
            return web.json_response(body, status=HTTPStatus.INTERNAL_SERVER_ERROR)

    def _knows(self, authorization: str) -> bool:
        given = authorization.removeprefix("Bearer ").encode()
        return not self._keys or any(hmac.compare_digest(given, key) for key in self._keys)

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self._version})

    async def load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": self._active})

    async def models(self, _: web.Request) -> web.Response:
        cards = [
            {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm",
             "root": self._arguments.model, "parent": None, "max_model_len": self._arguments.max_model_len}
            for name in self._arguments.served_names
        ]  # fmt: skip
        return web.json_response({"object": "list", "data": cards})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=False)

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=True)

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        if self._draining:
            body = completions.error_body(
                "The engine is shutting down", "ServiceUnavailable", HTTPStatus.SERVICE_UNAVAILABLE
            )
            return web.json_response(body, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Connection": "close"})
        self._active += 1
        self._idle.clear()
        try:
            call = completions.parse(await json_of(request), self._arguments, self._engine.id, chat=chat)
            async with contextlib.aclosing(self._engine.generate(call.request)) as tokens:
                if call.stream:
                    return await stream(request, completions.events(call, tokens))
                return web.json_response(await completions.whole(call, tokens))
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()


async def stream(request: web.Request, events: AsyncIterator[bytes]) -> web.StreamResponse:
    first = await anext(events)  # a failed load is an HTTP status as long as nothing has been sent
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    await response.write(first)
    async for event in events:
        await response.write(event)
    return response


async def json_of(request: web.Request) -> Json:
    try:
        body = await request.json()
    except ValueError as error:
        raise BadRequest(f"JSON decode error: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object")
    return body
