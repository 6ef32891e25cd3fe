"""Sample 2 on real kubelets: prefill and decode engines as containers, and what happens to them when the operator goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
from e2e.place import OPERATOR, RELEASE, ROOT, SYSTEM, condition, example
from e2e.serving import HANDED_OVER, handed_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.place import Json, Place

NAME = "glm-5-2-pd"
ENGINES = f"serving.kvpp.io/deployment={NAME},serving.kvpp.io/role"


@pytest.fixture(scope="module")
def served(operated: Place) -> Iterator[str]:
    """Give a namespace in which sample 2 is Ready."""
    with operated.namespace("prefill-decode") as namespace:
        operated.apply(example("2-prefill-decode.yaml"), namespace=namespace)
        operated.until_ready(namespace, NAME, seconds=180)
        yield namespace


def test_every_engine_is_a_ready_pod_on_a_host_of_its_own(operated: Place, served: str) -> None:
    pods = operated.pods(served, ENGINES)
    assert sorted(pod["metadata"]["labels"]["serving.kvpp.io/role"] for pod in pods) == ["decode", "prefill", "prefill"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    engines = operated.deployment(served, NAME)["status"]["engines"]
    assert [(engine["role"], engine["index"], engine["ready"]) for engine in engines] == [
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
    assert "(combined from similar events)" not in kubectl("events", "-n", served)


async def test_keys_and_values_travel_from_host_to_host(operated: Place, served: str) -> None:
    address = f"{served}.svc.cluster.local:8000"
    async with aiohttp.ClientSession() as http:
        text = await handed_over(http, f"http://{NAME}-prefill.{address}", f"http://{NAME}-decode.{address}")
    assert HANDED_OVER.search(text), text


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
