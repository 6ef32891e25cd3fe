"""Our agent with the P/D proxy of the engine's own release, and simulated engines, all on loopback."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from router_rig import SECONDS, Group, RealProxy, chat, decode_engine, prefill_engine, router

from kvpp_operator.router.standing import Reason, Standing

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp
    from kvpp_engine_simulator.local import LocalEngine
    from router_rig import Router

HANDED_OVER = re.compile(r"\[KV of (\d+) tokens handed over from (\S+) to (\S+)\]$")


def pair(text: str) -> tuple[str, str]:
    """Ids of the engines that an answer says it comes from."""
    found = HANDED_OVER.search(text)
    assert found is not None, text
    return found[2], found[3]


async def id_of(http: aiohttp.ClientSession, engine: LocalEngine) -> str:
    async with http.post(f"{engine.url}/v1/completions", json={"prompt": "who"}) as response:
        return str((await response.json())["system_fingerprint"])


async def stream(http: aiohttp.ClientSession, where: Router, **body: Any) -> tuple[int, str]:
    """Number of pieces that an answer came in, and its text."""
    asked = {"messages": [{"role": "user", "content": "stream"}], "stream": True, **body}
    async with http.post(f"{where.url}/v1/chat/completions", json=asked) as response:
        assert response.status == 200
        pieces = [piece async for piece in response.content.iter_any()]
    events = [line.removeprefix("data: ") for line in b"".join(pieces).decode().splitlines() if line]
    assert events[-1] == "[DONE]"
    return len(pieces), "".join(json.loads(event)["choices"][0]["delta"]["content"] for event in events[:-1])


async def test_a_chat_is_prefilled_here_and_decoded_there(http: aiohttp.ClientSession, proxy: RealProxy) -> None:
    async with prefill_engine() as p, decode_engine({"SIMULATOR_TOKEN_SECONDS": "0.02"}) as d, router(proxy.url) as at:
        at.engines.are(Group("a", (p,), (d,)))
        report = await at.serving(p, d)
        assert report.handover == "seen"
        assert pair(await chat(http, at)) == (await id_of(http, p), await id_of(http, d))
        pieces, text = await stream(http, at)
        assert pieces > 5  # word by word, not all at the end
        assert pair(text) == (await id_of(http, p), await id_of(http, d))
        async with http.get(f"{at.url}/v1/models") as response:
            assert (await response.json())["data"][0]["id"] == "glm"
        async with http.get(f"{at.url}/metrics") as response:
            shown = await response.text()
        for line in (
            'kvpp_router_members{role="prefill",state="serving"} 1.0',
            'kvpp_router_requests_total{code="200",path="/v1/chat/completions"} 2.0',
            "kvpp_router_handover_seen 1.0",
            "kvpp_router_ready 1.0",
        ):
            assert line in shown


async def test_admin_paths_are_refused(http: aiohttp.ClientSession, proxy: RealProxy) -> None:
    async with prefill_engine() as p, decode_engine() as d, router(proxy.url) as at:
        at.engines.are(Group("a", (p,), (d,)))
        await at.serving(p, d)
        body = json.dumps({"type": "prefill", "instances": [p.address]})
        for path in ("/instances/remove", "/v1/../instances/remove", "/v1/%2e%2e/instances/remove", "//instances/remove",
                     "/reset_prefix_cache", "/healthcheck", "/docs", "/openapi.json"):  # fmt: skip
            assert (path, await raw_status(at, path, body)) == (path, 404)
        await chat(http, at)  # nothing was removed
        async with http.post(f"{proxy.url}/instances/add", json={"type": "prefill", "instances": []}) as response:
            assert (await response.json())["current_prefill_instances"] == [p.address]


async def raw_status(at: Router, path: str, body: str) -> int:
    """Status of a POST whose path no client library has tidied."""
    host, _, port = at.settings.listen.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def test_twenty_requests_survive_the_end_of_a_prefill_engine(
    http: aiohttp.ClientSession, proxy: RealProxy
) -> None:
    slow = {"SIMULATOR_TOKEN_SECONDS": "0.05"}
    async with prefill_engine() as p1, prefill_engine() as p2, decode_engine(slow) as d, router(proxy.url) as at:
        at.engines.are(Group("a", (p1, p2), (d,)))
        await at.serving(p1, p2, d)
        ids = {await id_of(http, p1), await id_of(http, p2)}
        first = [asyncio.create_task(chat(http, at, f"early {number}")) for number in range(10)]
        await asyncio.sleep(0.2)  # in the middle of them
        at.engines.are(Group("a", (p1, p2), (d,), stopping=(p2,)))
        await at.serving(p1, d)
        second = [asyncio.create_task(chat(http, at, f"late {number}")) for number in range(10)]
        # The proxy has only set it aside, since requests run; nothing new may reach it all the same.
        answers = await asyncio.gather(*second)
        assert {pair(text)[0] for text in answers} == {await id_of(http, p1)}
        await p2.stop()
        assert {pair(text)[0] for text in await asyncio.gather(*first)} <= ids
        assert pair(await chat(http, at))[0] == await id_of(http, p1)


async def test_a_killed_engine_is_out_without_a_word_from_the_cluster(
    http: aiohttp.ClientSession, proxy: RealProxy
) -> None:
    async with prefill_engine() as p1, decode_engine() as d, router(proxy.url) as at:
        async with prefill_engine() as p2:
            at.engines.are(Group("a", (p1, p2), (d,)))
            await at.serving(p1, p2, d)
        await at.until(lambda report: len(report.members) == 2)
        assert {pair(await chat(http, at, str(number)))[0] for number in range(5)} == {await id_of(http, p1)}


async def test_an_engine_that_comes_back_is_used_again_though_requests_never_pause(
    http: aiohttp.ClientSession, proxy: RealProxy
) -> None:
    async with (
        prefill_engine() as p1, prefill_engine() as p2, decode_engine({"SIMULATOR_TOKEN_SECONDS": "0.03"}) as d,
        router(proxy.url) as at,
    ):  # fmt: skip
        at.engines.are(Group("a", (p1, p2), (d,)))
        await at.serving(p1, p2, d)

        async def ask_on() -> None:
            while True:
                await chat(http, at)

        load = [asyncio.create_task(ask_on()) for _ in range(4)]
        at.engines.are(Group("a", (p1, p2), (d,), stopping=(p2,)))
        await at.serving(p1, d)
        at.engines.are(Group("a", (p1, p2), (d,)))
        await at.serving(p1, p2, d)
        answers = await asyncio.gather(*(chat(http, at, str(number)) for number in range(8)))
        assert {pair(text)[0] for text in answers} == {await id_of(http, p1), await id_of(http, p2)}
        for task in load:
            assert not task.done()  # nobody was refused meanwhile
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)


async def test_a_proxy_that_restarts_gets_its_members_again(
    http: aiohttp.ClientSession, proxy_files: tuple[Path, Path]
) -> None:
    own = RealProxy(*proxy_files)
    own.start()
    async with prefill_engine() as p, decode_engine() as d, router(own.url, hold_seconds=60) as at:
        at.engines.are(Group("a", (p,), (d,)))
        await at.serving(p, d)
        own.kill()
        await at.standing(Reason.PROXY_DOWN)
        waiting = asyncio.create_task(chat(http, at))  # held until the proxy is back, not failed
        own.start()
        try:
            assert pair(await waiting)[0] == await id_of(http, p)
            await at.serving(p, d)
        finally:
            own.kill()


async def test_without_both_roles_nothing_is_served(http: aiohttp.ClientSession, proxy: RealProxy) -> None:
    async with prefill_engine() as p, decode_engine() as d, router(proxy.url, hold_seconds=0) as at:
        at.engines.are(Group("a", (p,), ()))
        words = "no healthy decode engine of revision a"
        await at.until(lambda report: report.standing == Standing(Reason.NO_MEMBERS, words))
        async with http.post(f"{at.url}/v1/chat/completions", json={}) as response:
            assert response.status == 503
            assert response.headers["Retry-After"] == "5"
            assert (await response.json())["error"]["message"] == words
        async with http.get(f"{at.url}/readyz") as response:
            assert response.status == 503
            assert (await response.json())["reason"] == "NoMembers"
        at.engines.are(Group("a", (p,), (d,)))
        await at.serving(p, d)


@pytest.mark.parametrize(
    ("at_prefill", "at_decode", "words"),
    [
        ({}, {"SIMULATOR_FAULT": "garble"}, "a missing /etc/hccn.conf or cache layouts that differ do that"),
        ({"SIMULATOR_FAULT": "keep"}, {}, "answers without kv_transfer_params: decode would do everything itself"),
    ],
)
async def test_a_hand_over_that_does_not_work_keeps_the_router_from_serving(
    http: aiohttp.ClientSession, proxy: RealProxy, at_prefill: dict[str, str], at_decode: dict[str, str], words: str
) -> None:
    async with prefill_engine(at_prefill) as p, decode_engine(at_decode) as d, router(proxy.url, hold_seconds=0) as at:
        at.engines.are(Group("a", (p,), (d,)))
        report = await at.standing(Reason.CANARY_FAILED)
        assert words in report.standing.message
        assert report.handover == "not seen"
        async with http.get(f"{at.url}/metrics") as response:
            shown = await response.text()
        assert 'kvpp_router_standing{reason="CanaryFailed"} 1.0' in shown
        assert "kvpp_router_handover_seen 0.0" in shown


async def test_a_new_revision_takes_over_without_mixed_pairs(http: aiohttp.ClientSession, proxy: RealProxy) -> None:
    slow = {"SIMULATOR_TOKEN_SECONDS": "0.02"}
    async with (
        prefill_engine() as old_p, decode_engine(slow) as old_d, prefill_engine() as new_p, decode_engine(slow) as new_d,
        router(proxy.url, revision="", service="router") as at,
    ):  # fmt: skip
        old, new = Group("a", (old_p,), (old_d,)), Group("b", (new_p,), (new_d,))
        old_pair, new_pair = [(await id_of(http, p), await id_of(http, d)) for p, d in ((old_p, old_d), (new_p, new_d))]
        at.engines.serve_revision("a")
        at.engines.are(old, new)
        await at.serving(old_p, old_d)
        seen: list[tuple[str, str]] = []

        async def ask_on() -> None:
            while new_pair not in seen:
                seen.append(pair(await chat(http, at)))

        callers = [asyncio.create_task(ask_on()) for _ in range(4)]
        at.engines.serve_revision("b")
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*callers)
        assert set(seen) == {old_pair, new_pair}
        assert (await at.serving(new_p, new_d)).revision == "b"


async def test_a_new_revision_that_does_not_work_is_held_back(http: aiohttp.ClientSession, proxy: RealProxy) -> None:
    async with (
        prefill_engine() as p, decode_engine() as d, prefill_engine() as bad_p, decode_engine({"SIMULATOR_FAULT": "garble"}) as bad_d,
        router(proxy.url, revision="", service="router") as at,
    ):  # fmt: skip
        at.engines.serve_revision("a")
        at.engines.are(Group("a", (p,), (d,)), Group("b", (bad_p,), (bad_d,)))
        await at.serving(p, d)
        at.engines.serve_revision("b")
        report = await at.until(lambda report: "revision b is held back" in report.standing.message)
        assert report.standing.is_ready
        assert pair(await chat(http, at)) == (await id_of(http, p), await id_of(http, d))


async def test_the_api_key_is_asked_here_and_there(http: aiohttp.ClientSession, proxy_files: tuple[Path, Path]) -> None:
    keyed = {"VLLM_API_KEY": "secret"}
    own = RealProxy(*proxy_files, api_key="secret")
    own.start()
    try:
        async with prefill_engine(keyed) as p, decode_engine(keyed) as d, router(own.url, api_key="secret") as at:
            at.engines.are(Group("a", (p,), (d,)))
            await at.serving(p, d)
            seen = {}
            for key in ("", "wrong", "secret"):
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                asked = {"messages": [{"role": "user", "content": "hi"}]}
                async with http.post(f"{at.url}/v1/chat/completions", json=asked, headers=headers) as response:
                    seen[key] = response.status
            assert seen == {"": 401, "wrong": 401, "secret": 200}
            async with http.get(f"{at.url}/readyz") as response:
                assert response.status == 200
    finally:
        own.kill()


async def test_stopping_answers_what_runs(http: aiohttp.ClientSession, proxy: RealProxy) -> None:
    async with (
        prefill_engine() as p,
        decode_engine({"SIMULATOR_TOKEN_SECONDS": "0.1"}) as d,
        router(proxy.url, drain_delay_seconds=0.3) as at,
    ):
        at.engines.are(Group("a", (p,), (d,)))
        await at.serving(p, d)
        running = asyncio.create_task(chat(http, at))
        await asyncio.sleep(0.1)
        at.stop.set()
        report = await at.standing(Reason.STOPPING)
        assert not report.standing.is_ready
        late = asyncio.create_task(chat(http, at))  # a node that has not heard of it yet
        assert pair(await running)
        assert pair(await late)
