"""Requests through the router's Service: sample 2, prefill and decode on three hosts, two routers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
import yarl
from e2e.place import condition, example
from e2e.serving import HANDED_OVER, chat, members, streamed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from e2e.place import Place

NAME = "glm-5-2-pd"
PREFILL = f"serving.kvpp.io/deployment={NAME},serving.kvpp.io/role=prefill"
ROUTERS = f"serving.kvpp.io/deployment={NAME},app.kubernetes.io/component=router"
AT_ONCE = 20
# Of the P/D proxy: who may call these decides where prompts go.
ADMIN_PATHS = ("/instances/add", "/instances/remove", "/reset_prefix_cache", "/healthcheck", "/v1/../instances/add")


@pytest.fixture(scope="module")
def served(operated: Place) -> Iterator[str]:
    """Give a namespace in which sample 2, router included, is Ready."""
    with operated.namespace("router") as namespace:
        operated.apply(example("2-prefill-decode.yaml"), namespace=namespace)
        operated.until_ready(namespace, NAME, seconds=180)
        yield namespace


@pytest.fixture
def url(operated: Place, served: str) -> str:
    """Give the address that the status tells users."""
    return f"http://{operated.deployment(served, NAME)['status']['router']['address']}"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


async def test_an_answer_tells_of_the_hand_over(
    operated: Place, served: str, url: str, http: aiohttp.ClientSession
) -> None:
    text = await chat(http, url)
    assert HANDED_OVER.search(text), text
    assert condition(operated.deployment(served, NAME), "HandoverSeen")["status"] == "True"
    operated.say(f"answer: {text}")


async def test_an_answer_streams(url: str, http: aiohttp.ClientSession) -> None:
    pieces = await streamed(http, url)
    assert len(pieces) > 8
    assert HANDED_OVER.search("".join(pieces))


@pytest.mark.parametrize("path", ADMIN_PATHS)
async def test_admin_paths_of_the_proxy_are_refused(url: str, http: aiohttp.ClientSession, path: str) -> None:
    asked = {"type": "prefill", "instances": ["10.0.0.1:8000"]}
    async with http.post(yarl.URL(f"{url}{path}", encoded=True), json=asked) as response:
        assert response.status == 404


async def test_requests_survive_the_deletion_of_a_prefill_pod(
    operated: Place, served: str, url: str, http: aiohttp.ClientSession
) -> None:
    """Twenty at a time without a pause, while one of two prefill engines goes and comes back."""
    gone = operated.pods(served, PREFILL)[0]["metadata"]["name"]
    answered: list[tuple[float, str]] = []
    load = asyncio.create_task(keep_asking(http, url, answered))
    await asyncio.sleep(2)
    operated.cluster.kubectl("delete", "pod", gone, "-n", served, "--wait=false")
    deleted = time.monotonic()
    await asyncio.to_thread(until_members, operated, served, {"prefill": 1, "decode": 1}, 15.0)
    dropped = time.monotonic()
    await asyncio.to_thread(until_members, operated, served, {"prefill": 2, "decode": 1}, 90.0)
    load.cancel()
    await asyncio.wait([load])
    failed_before = [text for moment, text in answered if text and moment < dropped]
    failed_after = [text for moment, text in answered if text and moment >= dropped]
    since = sum(moment >= deleted for moment, _ in answered)
    operated.say(
        f"dropped after {dropped - deleted:.1f} s; {len(answered)} requests, {since} since the deletion, "
        f"{len(failed_before)} failed until the router had dropped it, {len(failed_after)} afterwards"
    )
    assert since > AT_ONCE
    assert failed_after == []
    assert failed_before == []  # it is let go of before it stops: preStop waits


async def test_without_the_operator_traffic_goes_on_and_a_dead_engine_leaves(
    operated: Place, served: str, url: str, http: aiohttp.ClientSession
) -> None:
    operated.scale_operator(0)
    try:
        assert HANDED_OVER.search(await chat(http, url))
        engine = operated.pods(served, PREFILL)[0]
        await asyncio.to_thread(operated.kill_container, engine)
        killed = time.monotonic()
        await asyncio.to_thread(until_members, operated, served, {"prefill": 1, "decode": 1}, 15.0)
        took = time.monotonic() - killed
        operated.say(f"a killed engine has left the router after {took:.1f} s, without an operator")
        answers = await asyncio.gather(*(chat(http, url) for _ in range(AT_ONCE)))
        assert all(HANDED_OVER.search(answer) for answer in answers)
        assert took < 5
    finally:
        operated.scale_operator(1)
    operated.until_ready(served, NAME, seconds=90)


async def keep_asking(http: aiohttp.ClientSession, url: str, answered: list[tuple[float, str]]) -> None:
    """Note of every request when it began, and how it failed."""

    async def ask_on() -> None:
        while True:
            began = time.monotonic()
            try:
                text = await chat(http, url)
                failure = "" if HANDED_OVER.search(text) else text
            except (AssertionError, aiohttp.ClientError, TimeoutError) as error:
                failure = repr(error)
            answered.append((began, failure))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(ask_on())


def until_members(place: Place, namespace: str, wanted: dict[str, int], seconds: float) -> None:
    """Wait until every router pod has these engines behind it."""

    def look() -> bool:
        pods = place.pods(namespace, ROUTERS)
        return all(members(pod["status"]["podIP"]) == wanted for pod in pods)

    place.until(f"routers have {wanted} behind them", look, seconds=seconds, poll_seconds=0.1)
