"""Retries, waits and words of the transport, against a gateway that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.kubeconfig import Credentials
from kvpp_operator.cluster.transport import ClusterError, Transport, unobserved
from kvpp_operator.manifest import KIND_OF, Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NODES = KIND_OF["v1", "Node"]
OK = web.Response


class Gateway:
    """Answers from a list, then with an empty object; counts what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], web.StreamResponse]] = []
        self.asked: list[web.BaseRequest] = []
        self.delay_seconds = 0.0
        self.busy = self.busiest = 0
        self.server = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        await asyncio.sleep(self.delay_seconds)
        self.busy -= 1
        return self.answers.pop(0)() if self.answers else web.json_response({})


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway = Gateway()
    runner = web.ServerRunner(web.Server(gateway.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    gateway.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield gateway
    await runner.cleanup()


def transport(server: str, *, attempts: int = 3, timeout_seconds: float = 5.0, concurrency: int = 4) -> Transport:
    access = Access(lambda: Credentials(server, token="s3cret"))
    return Transport(
        access, concurrency=concurrency, timeout_seconds=timeout_seconds, attempts=attempts, observe=unobserved
    )


async def ask(server: str, **options: float) -> Manifest:
    async with transport(server, **options) as link:  # type: ignore[arg-type]
        return await link.call("GET", NODES, "/api/v1/nodes")


def status(code: int, reason: str, message: str, **headers: str) -> Callable[[], web.Response]:
    body = {"kind": "Status", "reason": reason, "message": message, "code": code}
    return lambda: web.json_response(body, status=code, headers=headers)


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_a_transient_answer_is_asked_again(gateway: Gateway, code: int) -> None:
    gateway.answers = [status(code, "Busy", "later")]
    assert await ask(gateway.server) == {}
    assert len(gateway.asked) == 2


@pytest.mark.parametrize("code", [400, 403, 404, 405, 409, 422])
async def test_a_refusal_is_final(gateway: Gateway, code: int) -> None:
    gateway.answers = [status(code, "No", "never")]
    with pytest.raises(ClusterError, match="never") as caught:
        await ask(gateway.server)
    assert (caught.value.status, caught.value.reason, caught.value.transient) == (code, "No", False)
    assert len(gateway.asked) == 1


async def test_patience_ends(gateway: Gateway) -> None:
    gateway.answers = [status(503, "ServiceUnavailable", "later")] * 5
    with pytest.raises(ClusterError, match="later") as caught:
        await ask(gateway.server, attempts=2)
    assert caught.value.transient
    assert len(gateway.asked) == 2


async def test_the_server_says_how_long_to_wait(gateway: Gateway) -> None:
    gateway.answers = [status(429, "TooManyRequests", "later", **{"Retry-After": "1"})]
    started = time.monotonic()
    assert await ask(gateway.server) == {}
    assert time.monotonic() - started >= 1.0


async def test_a_proxy_may_speak_html(gateway: Gateway) -> None:
    gateway.answers = [lambda: web.Response(status=403, text="<h1>Forbidden</h1>" + "x" * 1000)]
    with pytest.raises(ClusterError) as caught:
        await ask(gateway.server)
    assert caught.value.message.startswith("<h1>Forbidden</h1>")
    assert len(caught.value.message) == 256


async def test_an_answer_that_is_no_json(gateway: Gateway) -> None:
    gateway.answers = [lambda: web.Response(text="<html>")]
    with pytest.raises(ClusterError, match="no JSON") as caught:
        await ask(gateway.server, attempts=1)
    assert (caught.value.status, caught.value.transient) == (0, True)


async def test_no_answer_in_time(gateway: Gateway) -> None:
    gateway.delay_seconds = 5.0
    with pytest.raises(ClusterError, match=r"no answer from the API server in 0\.1 s") as caught:
        await ask(gateway.server, attempts=1, timeout_seconds=0.1)
    assert (caught.value.status, caught.value.transient) == (0, True)


async def test_a_dead_server() -> None:
    with pytest.raises(ClusterError, match="cannot reach the API server") as caught:
        await ask("http://127.0.0.1:1", attempts=2)
    assert (caught.value.status, caught.value.reason, caught.value.transient) == (0, "Unreachable", True)
    assert "s3cret" not in str(caught.value)


async def test_no_more_at_once_than_slots(gateway: Gateway) -> None:
    gateway.delay_seconds = 0.02
    async with transport(gateway.server, concurrency=3) as link:
        await asyncio.gather(*(link.call("GET", NODES, "/api/v1/nodes") for _ in range(12)))
    assert (len(gateway.asked), gateway.busiest) == (12, 3)


async def test_empty_parameters_are_not_sent(gateway: Gateway) -> None:
    async with transport(gateway.server) as link:
        await link.call("GET", NODES, "/api/v1/nodes", query={"limit": "5", "labelSelector": ""})
    assert dict(gateway.asked[0].query) == {"limit": "5"}
