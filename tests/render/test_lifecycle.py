"""The scripts by which the kubelet watches headless ranks, run against real processes and a real port."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import specs

from kvpp_operator.pipeline import wished
from kvpp_operator.render.lifecycle import RANK_WORKS, WAIT_FOR_HEAD

WORKERS = 3


@dataclass
class Rank:
    """Worker processes as the engine titles them, and the head's rendezvous port."""

    prefix: str = field(default_factory=lambda: f"T{secrets.token_hex(4)}")
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    head: socket.socket | None = None
    port: int = 0

    def start_worker(self) -> None:
        title = f"{self.prefix}::Worker_PP1_TP{len(self.workers)}"
        self.workers.append(subprocess.Popen(["bash", "-c", 'exec -a "$0" sleep 60', title]))
        wait_for_title(self.workers[-1].pid, title)

    def listen(self) -> None:
        self.head = socket.create_server(("127.0.0.1", self.port))
        self.port = self.head.getsockname()[1]

    def run(self, script: str, *more: str) -> tuple[int, str]:
        environment = {**os.environ, "VLLM_PROCESS_NAME_PREFIX": self.prefix, "LWS_LEADER_ADDRESS": "127.0.0.1"}
        command = ["bash", "-c", script, "rank", str(WORKERS), str(self.port), *more]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout.strip().replace(str(self.port), "PORT")

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        if self.head is not None:
            self.head.close()


def wait_for_title(pid: int, title: str) -> None:
    deadline = time.monotonic() + 10
    while title.encode() != Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
        assert time.monotonic() < deadline, f"no process {title}"
        time.sleep(0.01)


def wait_for_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != state:
        assert time.monotonic() < deadline, f"{pid} is not in state {state}"
        time.sleep(0.01)


@pytest.fixture
def rank() -> Iterator[Rank]:
    """A rank that works."""
    found = Rank()
    for _ in range(WORKERS):
        found.start_worker()
    found.listen()
    yield found
    found.end()


def test_a_rank_that_works(rank: Rank) -> None:
    assert rank.run(RANK_WORKS) == (0, "")


def test_a_worker_that_was_killed_and_that_its_parent_did_not_notice(rank: Rank) -> None:
    rank.workers[1].kill()
    wait_for_state(rank.workers[1].pid, "Z")
    assert rank.run(RANK_WORKS) == (1, "2 of 3 worker processes are alive")


def test_a_worker_that_is_stopped(rank: Rank) -> None:
    os.kill(rank.workers[2].pid, signal.SIGSTOP)
    wait_for_state(rank.workers[2].pid, "T")
    assert rank.run(RANK_WORKS) == (1, "2 of 3 worker processes are alive")
    os.kill(rank.workers[2].pid, signal.SIGCONT)
    wait_for_state(rank.workers[2].pid, "S")
    assert rank.run(RANK_WORKS) == (0, "")


def test_a_head_that_is_gone(rank: Rank) -> None:
    assert rank.head is not None
    rank.head.close()
    assert rank.run(RANK_WORKS) == (1, "the head does not answer at 127.0.0.1:PORT")


def test_before_the_workers_have_joined_their_group() -> None:
    early = Rank()
    early.listen()
    assert early.run(RANK_WORKS) == (1, "0 of 3 worker processes are alive")
    early.end()


def test_a_rank_that_works_waits_for_its_head_to_drain(rank: Rank) -> None:
    started = time.monotonic()
    assert rank.run(WAIT_FOR_HEAD, "2") == (0, "")
    assert 1 < time.monotonic() - started < 20


@pytest.mark.parametrize("what", ["the head is gone", "a worker is dead"])
def test_a_rank_that_does_not_work_waits_for_nobody(rank: Rank, what: str) -> None:
    if what == "the head is gone":
        assert rank.head is not None
        rank.head.close()
    else:
        rank.workers[0].kill()
        wait_for_state(rank.workers[0].pid, "Z")
    started = time.monotonic()
    assert rank.run(WAIT_FOR_HEAD, "600") == (0, "")
    assert time.monotonic() - started < 20


def test_where_ranks_have_no_group_in_common_no_head_is_asked(rank: Rank) -> None:
    """Replicas of a dense model: each node is on its own."""
    assert rank.head is not None
    rank.head.close()
    rank.port = 0
    assert rank.run(RANK_WORKS) == (0, "")
    rank.workers[0].kill()
    wait_for_state(rank.workers[0].pid, "Z")
    assert rank.run(RANK_WORKS) == (1, "2 of 3 worker processes are alive")


@pytest.mark.parametrize(
    ("moe", "parallelism", "port"),
    [
        (True, {"data": 2, "tensor": 8}, "29501"),
        (False, {"data": 2, "tensor": 8}, "0"),
        (False, {"tensor": 8, "pipeline": 2}, "29501"),
    ],
)
def test_the_rendezvous_of_an_engine(*, moe: bool, parallelism: dict[str, int], port: str) -> None:
    facts = {"attention": "MLA", "layers": 61, "moe": moe, "kvLoraRank": 512, "ropeHeadDim": 64}
    body = specs.deployment(
        specs.UNIFIED, model__profile=None, model__architecture=facts, unified__parallelism=parallelism
    )
    _, worker = pods(body)
    assert worker["containers"][0]["livenessProbe"]["exec"]["command"][-1] == port


def pods(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Head and worker templates of the first engine over several nodes."""
    groups = (m for m in wished(specs.planned(body)) if m["kind"] == "LeaderWorkerSet")
    group = next(groups)["spec"]["leaderWorkerTemplate"]
    return group["leaderTemplate"]["spec"], group["workerTemplate"]["spec"]


def test_heads_are_asked_by_http_and_ranks_by_their_processes() -> None:
    head, worker = pods(specs.deployment(specs.DISAGGREGATED, prefill__parallelism__pipeline=2))
    [leading], [following] = head["containers"], worker["containers"]
    assert leading["startupProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert leading["readinessProbe"]["httpGet"] == {"path": "/v1/models", "port": "http"}
    assert "readinessProbe" not in following
    for probe in ("startupProbe", "livenessProbe"):
        assert following[probe]["exec"]["command"] == ["bash", "-c", RANK_WORKS, "rank", "8", "29501"]


def test_startup_has_one_budget_on_all_ranks_and_in_the_engine() -> None:
    for pod in pods(
        specs.deployment(specs.DISAGGREGATED, prefill__parallelism__pipeline=2, prefill__startupTimeout="45m")
    ):
        [container] = pod["containers"]
        budget = container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"]
        told = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert (budget, told["VLLM_ENGINE_READY_TIMEOUT_S"], told["HCCL_CONNECT_TIMEOUT"]) == (2700, "2700", "2700")


@pytest.mark.parametrize(("budget", "connect"), [("30s", "120"), ("2m", "120"), ("3h", "7200")])
def test_hccl_gets_a_timeout_that_it_takes(budget: str, connect: str) -> None:
    for pod in pods(
        specs.deployment(specs.DISAGGREGATED, prefill__parallelism__pipeline=2, prefill__startupTimeout=budget)
    ):
        told = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
        assert told["HCCL_CONNECT_TIMEOUT"] == connect


def test_the_grace_period_holds_all_that_happens_in_it() -> None:
    """preStop, the drain, and the end of the workers."""
    head, worker = pods(
        specs.deployment(specs.DISAGGREGATED, prefill__parallelism__pipeline=2, prefill__shutdownTimeout="3m")
    )
    assert head["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert worker["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1] == "185"
    assert (head["terminationGracePeriodSeconds"], worker["terminationGracePeriodSeconds"]) == (215, 215)
