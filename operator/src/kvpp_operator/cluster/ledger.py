"""The port ledger in the cluster: every turn of this process on it, several turns in one write.

A turn reads the object, lets the pure half decide (`ledger.settle`), and writes by compare-and-swap; when another writer
was faster, everything is decided anew on what he wrote. Turns that come in while a write is under way wait and go together,
so a hundred deployments created at once cost a few writes and hardly meet each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvpp_operator.cluster.client import Conflict
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.ledger.crd import KIND, NAME, ledger_object
from kvpp_operator.ledger.live import live_claims
from kvpp_operator.ledger.settle import rebuild
from kvpp_operator.ledger.wire import dump, parse
from kvpp_operator.manifest import API_VERSION, KIND_OF, PODS, Key
from kvpp_operator import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kvpp_operator.cluster.client import Cluster

logger = logging.getLogger(__name__)

KEY = Key(API_VERSION, KIND, "", NAME)
ATTEMPTS = 20
PAUSE_SECONDS = 0.02
WORKLOADS = (KIND_OF["apps/v1", "Deployment"], KIND_OF["leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"])
MARK = f"{names.MANAGED_BY}={names.FIELD_MANAGER}"


@dataclass(frozen=True, slots=True)
class Stored:
    ledger: Ledger
    resource_version: str
    """"" when the object does not exist."""


@dataclass(slots=True)
class Waiting:
    turn: Callable[[Ledger], Awaitable[tuple[Ledger, Any]]]
    answer: asyncio.Future[Any]


class LedgerKeeper:
    """One per process. `conflicts` and `writes` count since the start."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiting: list[Waiting] = []
        self._lock = asyncio.Lock()
        self._seen: Ledger | None = None
        self.writes = 0
        self.conflicts: list[int] = []
        """Of each batch, how often another writer was faster."""

    async def take(self, turn: Callable[[Ledger], Awaitable[tuple[Ledger, Any]]]) -> Any:
        """Run a turn; when this returns, what it decided stands in the cluster. Raises `ClusterError`."""
        waiting = Waiting(turn, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        async with self._lock:
            if not waiting.answer.done():
                batch, self._waiting = self._waiting, []
                await self._serve(batch)
        return await waiting.answer

    async def _serve(self, batch: list[Waiting]) -> None:
        try:
            answers = await self._decide_and_write([waiting.turn for waiting in batch])
        except Exception as problem:  # noqa: BLE001 - whatever it was, each of those who wait must hear of it
            for waiting in batch:
                waiting.answer.set_exception(problem)
            return
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.answer.set_result(answer)

    async def _decide_and_write(self, turns: list[Callable[[Ledger], Awaitable[tuple[Ledger, Any]]]]) -> list[Any]:
        for attempt in range(ATTEMPTS):
            stored = await self._read()
            ledger, answers = stored.ledger, []
            for turn in turns:
                ledger, answer = await turn(ledger)
                answers.append(answer)
            if (stored.resource_version and ledger == stored.ledger) or await self._write(ledger, stored):
                self.conflicts.append(attempt)
                self._seen = ledger
                return answers
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * (attempt + 1)))  # noqa: S311 - two writers apart
        raise ClusterError(409, "Conflict", f"{KEY} was changed by others {ATTEMPTS} times in a row")

    async def _read(self) -> Stored:
        """The stored ledger; one that is gone, or that lost claims we knew, is first made to say again what runs."""
        found = await self._cluster.get(KEY)
        if found is None:
            logger.warning("the port ledger does not exist: rebuilding it from what runs")
            return Stored(await self._healed(Ledger()), "")
        parsed = parse(found.get("spec"))
        version = found["metadata"]["resourceVersion"]
        for dropped in parsed.dropped:
            logger.warning("the port ledger holds an entry that is no claim", extra={"entry": str(dropped)})
        lost = self._seen is None or not set(self._seen.claims) <= set(parsed.ledger.claims)
        if parsed.dropped or lost:
            return Stored(await self._healed(parsed.ledger), version)
        return Stored(parsed.ledger, version)

    async def _healed(self, ledger: Ledger) -> Ledger:
        """What live workloads and pods of the whole cluster show wins; nothing that runs moves."""
        shown = []
        for kind in (*WORKLOADS, PODS):
            labels = names.DEPLOYMENT if kind == PODS else MARK
            try:
                shown += [item async for item in self._cluster.list(kind, labels=labels)]
            except ClusterError as problem:
                if problem.status != 404:  # noqa: PLR2004 - an optional API that is absent holds nothing
                    raise
        rebuilt = rebuild(ledger, live_claims(shown))
        for change in rebuilt.changes:
            logger.warning("port ledger healed", extra={"change": change.message})
        return rebuilt.ledger

    async def _write(self, ledger: Ledger, stored: Stored) -> bool:
        manifest = ledger_object(dump(ledger), stored.resource_version)
        if stored.resource_version:
            answer = await self._cluster.replace(manifest)
        else:
            answer = await self._cluster.create(manifest)
        if isinstance(answer, Conflict):
            return False
        self.writes += 1
        return True
