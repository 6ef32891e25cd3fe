"""The port ledger: what a turn costs, and how often writers get in each other's way on a real API server.

Targets: an allocation in a window filled to 90 % takes at most 5 ms; 100 deployments at once lose at most 3 races at p99.
"""

from __future__ import annotations

import asyncio
import logging
import time

import chart
import ledger_speed

from kvpp_devcluster.cluster import LocalCluster
from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.cache import Cache
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.cluster.ledger import KEY, LedgerKeeper, Look
from kvpp_operator.ledger.allocate import Request
from kvpp_operator.ledger.claim import HOST, KV, Holder, Ledger, Owner
from kvpp_operator.ledger.settle import Settled, settle
from kvpp_operator.ledger.window import host_windows, kv_window
from kvpp_operator.ledger.wire import parse

DEPLOYMENTS = 100
LENGTHS = (3, 3, 2)
"""Two prefill engines of TP2 and a decode engine of TP1."""


def main() -> None:
    ledger_speed.speed()
    with LocalCluster(groups=(), controller_manager_flags=("--controllers=garbage-collector-controller",)) as cluster:
        chart.install_crds(cluster)
        for writers in (1, 2, 4):
            asyncio.run(claim_at_once(cluster, writers))
            cluster.kubectl("delete", "kvppportledger", KEY.name)


class Claiming:
    """The turn of one deployment that asks for all its blocks."""

    def __init__(self, name: str) -> None:
        self._owner = Owner("default", name, f"uid of {name}")

    async def prepare(self, ledger: Ledger, look: Look) -> None:
        """Nothing is freed here, so nothing is read."""

    def take(self, ledger: Ledger, look: Look) -> tuple[Ledger, Settled]:
        window, places = (kv_window(8),), host_windows(8)
        holders = [Holder(self._owner, "engine", index, "r1") for index in range(len(LENGTHS))]
        kv = [Request(holder, KV, length, window) for holder, length in zip(holders, LENGTHS, strict=True)]
        host = [Request(holder, HOST, 19, places) for holder in holders]
        settled = settle(ledger, [*kv, *host], live=look or (), keep=(), owners=())
        return settled.ledger, settled


class Races(logging.Handler):
    """Collects what the keepers log: of each written batch its turns, and how many races it lost before."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[int] = []
        self.writes = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "port ledger written":
            self.writes += 1
            self.lost += [vars(record)["lost_races"]] * vars(record)["turns"]


async def claim_at_once(cluster: LocalCluster, writers: int) -> None:
    """All deployments ask at the same moment; each writer has its share, as if it were an operator of its own."""
    races, logger = Races(), logging.getLogger("kvpp_operator.cluster.ledger")
    logger.addHandler(races)
    logger.setLevel(logging.INFO)
    clusters = [Cluster(Access(lambda: load(str(cluster.kubeconfig)))) for _ in range(writers)]
    keepers = [LedgerKeeper(await one.__aenter__(), Cache()) for one in clusters]
    started = time.perf_counter()
    await asyncio.gather(*(keepers[index % writers].take(Claiming(f"d{index}")) for index in range(DEPLOYMENTS)))
    seconds = time.perf_counter() - started
    found = await clusters[0].get(KEY)
    for one in clusters:
        await one.__aexit__(None, None, None)
    logger.removeHandler(races)
    ledger = parse((found or {}).get("spec")).ledger
    assert ledger.is_sound()
    assert len(ledger) == DEPLOYMENTS * len(LENGTHS) * 2
    lost = sorted(races.lost)
    print(
        f"{DEPLOYMENTS} deployments at once, {writers} writers: {seconds:5.2f} s, {races.writes} writes, "
        f"races lost by a claim p50 {lost[len(lost) // 2]}, p99 {lost[int(len(lost) * 0.99)]}, most {lost[-1]}"
    )
