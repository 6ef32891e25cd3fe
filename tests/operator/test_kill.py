"""SIGKILL at the k-th write of a first reconcile, for every k: started again, the result is as without the kill."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import specs
from operator_process import Cluster, Operator
from projection import projected

from kvpp_devcluster.proxy import Moment, Write, WriteProxy

pytestmark = pytest.mark.cluster

VOLATILE = ("ownerReferences",)


def state(user: Cluster) -> dict[tuple[str, str], Any]:
    """Owned objects as we applied them, and the status without what time and chance decide."""
    found = {(live["kind"], live["metadata"]["name"]): projected(live) for live in user.owned("demo")}
    for manifest in found.values():
        for key in VOLATILE:
            manifest["metadata"].pop(key, None)
        manifest["metadata"].pop("namespace")
    status = user.deployment("demo")["status"]
    conditions = {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}
    engines = [{k: v for k, v in engine.items() if k != "nodes"} for engine in status["engines"]]
    return {**found, ("status", "demo"): {**status, "conditions": conditions, "engines": engines}}


async def first_reconcile(
    user: Cluster, kubeconfig: Path, folder: Path, body: dict[str, Any], kill_at: tuple[int, Moment] | None
) -> tuple[dict[tuple[str, str], Any], list[Write]]:
    """Apply, let the operator die at a write, start it again, wait for Ready; the state and the writes of the first life."""
    async with WriteProxy.of(kubeconfig) as proxy:
        operator = Operator(
            proxy.write_kubeconfig(folder / "proxied.kubeconfig"), folder / "operator.log", (user.namespace,)
        )
        killed = asyncio.Event()

        def on_write(write: Write, moment: Moment) -> None:
            if (write.number, moment) == kill_at and not killed.is_set():
                operator.kill()
                killed.set()

        proxy.on_write = on_write
        await asyncio.to_thread(operator.start)
        await asyncio.to_thread(user.apply, body)
        if kill_at is not None:
            await asyncio.wait_for(killed.wait(), 30)
        first_life = list(proxy.writes)
        if kill_at is not None:
            await proxy.settled()
            await asyncio.to_thread(operator.start)
        try:
            await asyncio.to_thread(user.wait, "demo", "Ready")
            await asyncio.to_thread(user.wait, "demo", "Reconciling", "False")
            return await asyncio.to_thread(state, user), first_life
        finally:
            await asyncio.to_thread(operator.stop)


async def gone(user: Cluster) -> None:
    await asyncio.to_thread(user.kubectl, "delete", "kvpp", "demo", "--wait=true")
    while await asyncio.to_thread(user.owned, "demo") or (await asyncio.to_thread(user.get, "pods"))["items"]:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("host_network", [False, True], ids=["pod network", "host network"])
async def test_every_write_of_a_first_reconcile(
    user: Cluster, operator_kubeconfig: Path, tmp_path: Path, host_network: bool
) -> None:
    networking = {"networking": {"hostNetwork": True, "interface": "eth0"}} if host_network else {}
    body = specs.deployment(specs.DISAGGREGATED, **networking)
    reference, writes = await first_reconcile(user, operator_kubeconfig, tmp_path, body, None)
    await gone(user)
    first_writes = [write for write in writes if write.resource not in ("events",)]
    assert len(first_writes) >= 7  # account, revision, 2 services, 2 engines, status
    for number in range(1, len(writes) + 1):
        moment = Moment.ANSWERED if number % 2 else Moment.RECEIVED
        again, _ = await first_reconcile(user, operator_kubeconfig, tmp_path, body, (number, moment))
        assert again == reference, f"killed at write {number} ({moment.value}) of {[w.path for w in writes]}"
        await gone(user)
