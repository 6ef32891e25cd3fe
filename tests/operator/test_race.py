"""Two operators at work on one ledger: nobody elects a leader here, both write."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import chart
import psutil
import pytest
import specs
import yaml
from operator_process import Cluster, Operator, eventually

from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.proxy import WriteProxy
from kvpp_operator.ledger.claim import KV, Claim, Ledger
from kvpp_operator.ledger.live import live_claims
from kvpp_operator.ledger.wire import parse

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # minutes: `make test-long`

DEPLOYMENTS = 200
ENGINES = 3
SPEC: dict[str, Any] = {
    **specs.DISAGGREGATED,
    "prefill": {"replicas": 2, "parallelism": {"tensor": 2, "expert": True}},
    "decode": {"parallelism": {"tensor": 1, "expert": True}},
    "networking": {"hostNetwork": True, "interface": "eth0"},
    "router": {"type": "None"},
}
SECONDS = 600.0
"""The machine may be busy with much else; alone on two cores it takes a minute or two."""


def body(index: int) -> dict[str, Any]:
    made = specs.deployment(SPEC, name=f"d{index:03}")
    return {**made, "metadata": {"name": made["metadata"]["name"]}}


def written_ledgers(proxies: list[WriteProxy]) -> list[Ledger]:
    """Every version of the ledger that ever stood in the cluster, in the order of an operator's writes."""
    writes = [write for proxy in proxies for write in proxy.writes if write.resource == "kvppportledgers"]
    return [parse(json.loads(write.body)["spec"]).ledger for write in writes if write.status in (200, 201)]


def has_engines(user: Cluster) -> bool:
    """Asked for one object, the server tells how many more there are: a list of all, time and again, would be the load."""
    time.sleep(0.5)
    found = user.cluster.get(f"/apis/apps/v1/namespaces/{user.namespace}/deployments?limit=1")
    return bool(found["metadata"].get("remainingItemCount", 0) + 1 == DEPLOYMENTS * ENGINES)


def all_claimed(user: Cluster) -> bool:
    time.sleep(0.5)
    conditions = [c for d in user.items("kvppdeployments") for c in d.get("status", {}).get("conditions", ())]
    return Counter(c["status"] for c in conditions if c["type"] == "PortsAllocated") == {"True": DEPLOYMENTS}


def none_claimed(user: Cluster) -> bool:
    time.sleep(0.5)
    return not user.claims()


def figures(what: str, seconds: float, proxies: list[WriteProxy], operators: list[Operator]) -> None:
    answers = [Counter(w.status for w in proxy.writes if w.resource == "kvppportledgers") for proxy in proxies]
    lines = [line for operator in operators for line in operator.logged() if line["message"] == "port ledger written"]
    races = sorted(line["lost_races"] for line in lines for _ in range(line["turns"]))
    written, lost = sum(a[200] + a[201] for a in answers), sum(a[409] for a in answers)
    cpu = [sum(psutil.Process(operator.process.pid).cpu_times()[:2]) for operator in operators if operator.process]
    print(
        f"\n{what}: {seconds:.0f} s; CPU seconds of the operators {[round(used) for used in cpu]}; ledger writes {written} (by operator {[a[200] + a[201] for a in answers]}), lost races {lost}; "
        f"of {len(races)} turns p50 {races[len(races) // 2]}, p99 {races[int(len(races) * 0.99)]}, most {races[-1]}"
    )


@pytest.fixture(scope="module")
def crowd() -> Iterator[Cluster]:
    """A cluster of its own, whose only controller collects garbage: 600 pods would be most of the work, and no help."""
    flags = ("--controllers=garbage-collector-controller",)
    with LocalCluster(groups=(), controller_manager_flags=flags) as cluster:
        chart.install_crds(cluster)
        yield Cluster(cluster, "default")


async def test_two_operators_and_two_hundred_deployments(crowd: Cluster, tmp_path: Path) -> None:
    user, operator_kubeconfig = crowd, chart.operator_kubeconfig(crowd.cluster)
    async with AsyncExitStack() as stack:
        proxies, operators = [], []
        for name in ("a", "b"):
            proxy = await stack.enter_async_context(WriteProxy.of(operator_kubeconfig))
            kubeconfig = proxy.write_kubeconfig(tmp_path / f"{name}.kubeconfig")
            operator = Operator(kubeconfig, tmp_path / f"{name}.log", (user.namespace,))
            stack.push_async_callback(asyncio.to_thread, operator.stop)
            await asyncio.to_thread(operator.start)
            proxies.append(proxy)
            operators.append(operator)
        bodies = yaml.safe_dump_all([body(index) for index in range(DEPLOYMENTS)])
        started = time.monotonic()
        await asyncio.to_thread(user.kubectl, "create", "-f", "-", input=bodies)
        await asyncio.to_thread(eventually, lambda: has_engines(user), seconds=SECONDS)
        await asyncio.to_thread(eventually, lambda: all_claimed(user), seconds=SECONDS)
        figures(f"{DEPLOYMENTS} deployments claimed", time.monotonic() - started, proxies, operators)
        shown = live_claims({**item, "kind": "Deployment"} for item in user.items("deployments"))
        stored = parse({"claims": user.claims()}).ledger
        assert Ledger(shown) == stored
        assert len(stored) == DEPLOYMENTS * ENGINES * 2
        assert sum(claim.block.length for claim in stored if claim.purpose == KV) == DEPLOYMENTS * 8
        assert all(written_ledgers([proxy]) for proxy in proxies), "one of the two wrote nothing"
        started = time.monotonic()
        await asyncio.to_thread(user.kubectl, "delete", "kvpp", "--all", "--wait=false")
        await asyncio.to_thread(eventually, lambda: none_claimed(user), seconds=SECONDS)
        figures("deleted and freed", time.monotonic() - started, proxies, operators)
        # Not one of the ledgers that ever stood there had an overlap, and no engine ever got a second block.
        ledgers = written_ledgers(proxies)
        assert [ledger for ledger in ledgers if not ledger.is_sound()] == []
        claims: set[Claim] = {claim for ledger in ledgers for claim in ledger}
        assert len(claims) == DEPLOYMENTS * ENGINES * 2
