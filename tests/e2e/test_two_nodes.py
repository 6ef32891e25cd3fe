"""Sample 3: one prefill engine over two hosts, by the real LeaderWorkerSet controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e.place import condition, example, weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.place import Place

NAME = "glm-5-2-pp"
PREFILL = f"serving.kvpp.io/deployment={NAME},serving.kvpp.io/role=prefill"
RANK = "leaderworkerset.sigs.k8s.io/worker-index"


@pytest.fixture(scope="module")
def spanning(operated: Place) -> Iterator[str]:
    """Give a namespace in which sample 3 is Ready."""
    with operated.namespace("two-nodes") as namespace:
        operated.apply(*weights(namespace), example("3-two-node-prefill.yaml"), namespace=namespace)
        operated.until_ready(namespace, NAME, seconds=180)
        yield namespace
    operated.cluster.kubectl("delete", "persistentvolume", "e2e-weights")


def test_the_ranks_run_on_two_hosts_and_found_each_other_by_name(operated: Place, spanning: str) -> None:
    pods = {pod["metadata"]["labels"][RANK]: pod for pod in operated.pods(spanning, PREFILL)}
    assert sorted(pods) == ["0", "1"]
    assert len({pod["spec"]["nodeName"] for pod in pods.values()}) == 2
    (container,) = pods["1"]["spec"]["containers"]
    leader = next(one["value"] for one in container["env"] if one["name"] == "LWS_LEADER_ADDRESS")
    ask = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
    answer = operated.cluster.kubectl(
        "exec", pods["1"]["metadata"]["name"], "-n", spanning, "--", "python3", "-c", ask, leader
    )
    assert answer.strip() == pods["0"]["status"]["podIP"]


def test_a_killed_container_restarts_the_group(operated: Place, spanning: str) -> None:
    before = {pod["metadata"]["uid"] for pod in operated.pods(spanning, PREFILL)}
    worker = next(pod for pod in operated.pods(spanning, PREFILL) if pod["metadata"]["labels"][RANK] == "1")
    operated.kill_container(worker)
    operated.until(
        "not Ready any more",
        lambda: condition(operated.deployment(spanning, NAME), "Ready")["status"] == "False",
        seconds=60,
    )

    def renewed() -> bool:
        now = {pod["metadata"]["uid"] for pod in operated.pods(spanning, PREFILL)}
        return len(now) == 2 and not now & before

    operated.until("both ranks are new pods", renewed, seconds=120)
    operated.until_ready(spanning, NAME, seconds=120)
