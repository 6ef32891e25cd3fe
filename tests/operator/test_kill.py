"""SIGKILL at the k-th write of the operator, for every k: started again, the result is as without the kill."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
import specs
from operator_process import Cluster, Operator, eventually
from projection import projected

from kvpp_devcluster.proxy import Moment, Write, WriteProxy
from kvpp_operator import names
from kvpp_operator.ledger.wire import parse

pytestmark = pytest.mark.cluster

PODS: dict[str, Any] = {}
HOST: dict[str, Any] = {"networking": {"hostNetwork": True, "interface": "eth0"}}


@dataclass
class Mortal:
    """An operator that dies at one of its writes, and is started again."""

    proxy: WriteProxy
    operator: Operator
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    writes: list[Write] = field(default_factory=list)
    kill_at: int = 0

    def on_write(self, write: Write, moment: Moment) -> None:
        if write.resource == "events":
            return
        if moment is Moment.RECEIVED:
            self.writes.append(write)
        # Before the server has it, or after it answered: turn about.
        last = (self.kill_at, Moment.ANSWERED if self.kill_at % 2 else Moment.RECEIVED)
        if (self.writes.index(write) + 1, moment) == last and not self.killed.is_set():
            self.operator.kill()
            self.killed.set()

    def check_ledgers(self) -> None:
        """Whatever was written meanwhile: no overlap, and no engine was given a second block."""
        stored = [
            json.loads(write.body)
            for write in self.writes
            if write.resource == "kvppportledgers" and write.status < 300
        ]
        ledgers = [parse(body["spec"]).ledger for body in stored]
        assert [ledger for ledger in ledgers if not ledger.is_sound()] == []
        claims = {claim for ledger in ledgers for claim in ledger}
        assert len(claims) == len({claim.key for claim in claims}), claims

    async def dies_at(self, number: int, act: Callable[[], Any], settled: Callable[[], Any]) -> bool:
        """Act, die at a write, live again, settle. False if there was no such write any more."""
        self.writes.clear()
        self.kill_at = number
        self.killed.clear()
        await asyncio.to_thread(act)
        settling = asyncio.create_task(asyncio.to_thread(eventually, settled, seconds=60))
        dying = asyncio.create_task(self.killed.wait())
        await asyncio.wait({settling, dying}, return_when=asyncio.FIRST_COMPLETED)
        died = self.killed.is_set()
        self.kill_at = 0
        dying.cancel()
        if died:
            await self.proxy.settled()
            await asyncio.to_thread(self.operator.start)
        await settling
        self.check_ledgers()
        return died


@asynccontextmanager
async def mortal(user: Cluster, kubeconfig: Path, folder: Path) -> AsyncIterator[Mortal]:
    async with WriteProxy.of(kubeconfig) as proxy:
        operator = Operator(
            proxy.write_kubeconfig(folder / "proxied.kubeconfig"), folder / "operator.log", (user.namespace,)
        )
        victim = Mortal(proxy, operator)
        proxy.on_write = victim.on_write
        await asyncio.to_thread(operator.start)
        try:
            yield victim
        finally:
            await asyncio.to_thread(operator.stop)


def state(user: Cluster) -> dict[str, Any]:
    """Owned objects as we applied them and the status, without what time and chance decide, and without port numbers."""
    found = {f"{live['kind']} {live['metadata']['name']}": projected(live) for live in user.owned("demo")}
    for manifest in found.values():
        for key in ("ownerReferences", "namespace", "annotations"):
            manifest["metadata"].pop(key, None)
        manifest.pop("revision", None)  # counts the changes of the spec
    status = user.deployment("demo")["status"]
    conditions = {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}
    engines = [{k: v for k, v in engine.items() if k != "nodes"} for engine in status["engines"]]
    found["status"] = {**status, "conditions": conditions, "engines": engines, "observedGeneration": 0}
    names_of_ports = {
        str(number): f"{claim['role']} {claim['engine']} {claim['purpose']} +{number - claim['first']}"
        for claim in user.claims()
        for number in range(claim["first"], claim["last"] + 1)
    }
    text = re.sub(r"\b\d{5}\b", lambda number: names_of_ports.get(number[0], number[0]), json.dumps(found))
    named: dict[str, Any] = {"everything": text, "claimed": sorted(set(names_of_ports.values()))}
    return named


def is_settled(user: Cluster) -> bool:
    """All is ready, nothing under way, nothing left of an older revision."""
    [found] = user.items("kvppdeployments")
    generation, status = found["metadata"]["generation"], found.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", []) if c["observedGeneration"] == generation}
    if (conditions.get("Ready"), conditions.get("Reconciling")) != ("True", "False"):
        return False
    engines = [pod for pod in user.items("pods") if names.ENGINE in pod["metadata"]["labels"]]
    pods = {pod["metadata"]["labels"][names.REVISION] for pod in engines}
    return pods == {status["revision"]} >= {claim["revision"] for claim in user.claims()}


def is_gone(user: Cluster) -> bool:
    return not (user.claims() or user.items("pods") or user.owned("demo"))


async def test_every_write_of_a_first_reconcile_and_of_the_release(
    user: Cluster, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    """On the host network, which writes all that the pod network does, and the ledger."""
    body = specs.deployment(specs.DISAGGREGATED, **HOST)
    async with mortal(user, operator_kubeconfig, tmp_path) as operator:
        await operator.dies_at(0, lambda: user.apply(body), lambda: is_settled(user))
        reference, usual = state(user), [write.resource for write in operator.writes]
        # The ledger, accounts, the router's Role, its binding and report, revision, services, router, 2 engines, status.
        assert len(usual) >= 16
        await operator.dies_at(0, lambda: user.kubectl("delete", "kvpp", "demo"), lambda: is_gone(user))
        for number in count(1):
            died = await operator.dies_at(number, lambda: user.apply(body), lambda: is_settled(user))
            assert state(user) == reference, f"killed at write {number} of {usual}"
            await operator.dies_at(number, lambda: user.kubectl("delete", "kvpp", "demo"), lambda: is_gone(user))
            if not died:
                break


async def test_every_write_of_a_rollout(user: Cluster, operator_kubeconfig: Path, tmp_path: Path) -> None:
    """To and fro between two revisions; each gets new blocks and gives the old ones back."""
    changes = {**HOST, "router": {"type": "None"}}  # of a router a rollout writes one label
    bodies = [specs.deployment(specs.DISAGGREGATED, model__maxModelLen=length, **changes) for length in (4096, 8192)]
    async with mortal(user, operator_kubeconfig, tmp_path) as operator:
        references = []
        for body in (*bodies, *bodies):
            await operator.dies_at(0, partial(user.apply, body), lambda: is_settled(user))
            references.append(state(user))
        usual = [write.resource for write in operator.writes]
        assert references[:2] == references[2:]
        for number, body, reference in zip(count(1), cycle(bodies), cycle(references)):
            died = await operator.dies_at(number, partial(user.apply, body), lambda: is_settled(user))
            assert state(user) == reference, f"killed at write {number} of {usual}"
            if not died:
                break
