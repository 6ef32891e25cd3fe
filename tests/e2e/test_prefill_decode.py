"""Sample 2 on real kubelets: engines as containers, requests through the router, and what happens when something goes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
import yarl
from e2e.load import AT_ONCE, Answered, failure_of, keep_asking, until_members
from e2e.place import OPERATOR, RELEASE, ROOT, SYSTEM, condition, example
from e2e.serving import HANDED_OVER, chat, handed_over, streamed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from e2e.place import Json, Place

NAME = "glm-5-2-pd"
# Of the P/D proxy: whoever calls these decides where prompts go.
ADMIN_PATHS = ("/instances/add", "/instances/remove", "/reset_prefix_cache", "/healthcheck", "/v1/../instances/add")
ENGINES = f"serving.kvpp.io/deployment={NAME},serving.kvpp.io/role"


@pytest.fixture(scope="module")
def served(operated: Place) -> Iterator[str]:
    """Give a namespace in which sample 2 is Ready."""
    with operated.namespace("prefill-decode") as namespace:
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


def test_every_engine_is_a_ready_pod_on_a_host_of_its_own(operated: Place, served: str) -> None:
    pods = operated.pods(served, ENGINES)
    assert sorted(pod["metadata"]["labels"]["serving.kvpp.io/role"] for pod in pods) == ["decode", "prefill", "prefill"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    engines = operated.deployment(served, NAME)["status"]["engines"]
    assert sorted((engine["role"], engine["index"], engine["ready"]) for engine in engines) == [
        ("decode", 0, True),
        ("prefill", 0, True),
        ("prefill", 1, True),
    ]


def test_describe_and_logs_tell_about_an_engine(operated: Place, served: str) -> None:
    pod = operated.pods(served, f"{ENGINES}=decode")[0]["metadata"]["name"]
    kubectl = operated.cluster.kubectl
    assert "vllm" in kubectl("describe", "pod", pod, "-n", served)
    assert NAME in kubectl("describe", "kvpp", NAME, "-n", served)
    assert kubectl("logs", pod, "-n", served).strip()


async def test_keys_and_values_travel_from_host_to_host(served: str, http: aiohttp.ClientSession) -> None:
    address = f"{served}.svc.cluster.local:8000"
    text = await handed_over(http, f"http://{NAME}-prefill.{address}", f"http://{NAME}-decode.{address}")
    assert HANDED_OVER.search(text), text


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
    gone = operated.pods(served, f"{ENGINES}=prefill")[0]["metadata"]["name"]
    answered: list[Answered] = []
    enough = asyncio.Event()
    load = asyncio.create_task(keep_asking(http, url, answered, enough))
    await asyncio.sleep(2)
    deleted = time.monotonic()
    operated.cluster.kubectl("delete", "pod", gone, "-n", served, "--wait=false")
    await until_members(operated, served, NAME, {"prefill": 1, "decode": 1}, seconds=15)
    took = time.monotonic() - deleted
    await until_members(operated, served, NAME, {"prefill": 2, "decode": 1}, seconds=90)
    enough.set()
    await load
    before = [one.failure for one in answered if one.failure and one.began < deleted + took]
    after = [one.failure for one in answered if one.failure and one.began >= deleted + took]
    operated.say(
        f"dropped after {took:.1f} s; {len(answered)} requests, {len(before)} of those that began before that "
        f"failed, {len(after)} of the others"
    )
    assert sum(one.began > deleted + took for one in answered) > AT_ONCE
    assert after == []
    assert before == []  # the kubelet waits in preStop until the router has let go


async def test_without_an_operator_traffic_goes_on_and_a_dead_engine_leaves(
    operated: Place, served: str, url: str, http: aiohttp.ClientSession
) -> None:
    operated.scale_operator(0)
    try:
        assert await failure_of(http, url) == ""
        engine = operated.pods(served, f"{ENGINES}=prefill")[0]
        killed = time.monotonic()
        operated.kill_container(engine)
        await until_members(operated, served, NAME, {"prefill": 1, "decode": 1}, seconds=15)
        took = time.monotonic() - killed
        operated.say(f"a killed engine has left the routers after {took:.1f} s, without an operator")
        assert await asyncio.gather(*(failure_of(http, url) for _ in range(AT_ONCE))) == [""] * AT_ONCE
        assert took < 5
    finally:
        operated.scale_operator(1)
    await until_members(operated, served, NAME, {"prefill": 2, "decode": 1}, seconds=60)
    operated.until_ready(served, NAME, seconds=60)


def test_engines_outlive_an_operator_of_another_image(operated: Place, served: str) -> None:
    before = _uids(operated, served)
    operated.cluster.kubectl("delete", "pod", "-n", SYSTEM, f"--selector={OPERATOR}", "--wait=true")
    operated.cluster.kubectl("rollout", "status", f"deployment/{RELEASE}", "-n", SYSTEM, "--timeout=60s")
    operated.say("the operator's pod was deleted and is back")
    chart, tag = str(ROOT / "charts/kvpp-operator"), operated.next_operator()
    operated.cluster.helm(
        "upgrade",
        RELEASE,
        chart,
        "-n",
        SYSTEM,
        "--reuse-values",
        "--set",
        f"image.tag={tag}",
        "--wait",
        "--timeout=90s",
    )
    (operator,) = operated.pods(SYSTEM, OPERATOR)
    assert operator["spec"]["containers"][0]["image"].endswith(f":{tag}")
    operated.say("an operator of another image has taken over")
    _reconciled_again(operated, served)
    assert _uids(operated, served) == before


def _reconciled_again(place: Place, namespace: str) -> None:
    """Make the operator look: an annotation wakes it up, and a moment later nothing has changed but that."""
    place.cluster.kubectl(
        "annotate", "kvpp", NAME, "-n", namespace, f"example.com/touched={time.time()}", "--overwrite"
    )
    time.sleep(5)
    assert condition(place.deployment(namespace, NAME), "Ready")["status"] == "True"


def _uids(place: Place, namespace: str) -> dict[str, str]:
    pods: list[Json] = place.pods(namespace, ENGINES)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
