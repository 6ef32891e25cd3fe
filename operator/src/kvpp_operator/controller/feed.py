"""From the API server to the queue: watches fill the cache, news of an object asks for a look at its deployment."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from kvpp_operator.cluster.cache import is_renewal
from kvpp_operator.cluster.ledger import KEY as LEDGER
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.controller.ledger_news import claimants, concerned
from kvpp_operator.controller.streams import Stream, Streams
from kvpp_operator.controller.sweep import compare
from kvpp_operator.controller.watch import Watch
from kvpp_operator.manifest import (
    DEPLOYMENTS,
    KINDS,
    LEASES,
    LEDGERS,
    NAMESPACES,
    PODS,
    DeploymentKey,
    Kind,
    Manifest,
    key_of,
)

if TYPE_CHECKING:
    from kvpp_operator.cluster.access import Access
    from kvpp_operator.cluster.cache import Cache, Entry
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.controller.metrics import Metrics
    from kvpp_operator.controller.queue import WorkQueue
    from kvpp_operator.manifest import Key

logger = logging.getLogger(__name__)

DISCOVERY_SECONDS = 30.0
POLL_SECONDS = 0.1
# After a list that started over, the objects listed are still on their way through the watcher.
SETTLE_SECONDS = 1.0
BEHIND_SECONDS = 5.0


class Feed:
    """Keeps the cache true and the queue informed, for as long as `run` runs."""

    def __init__(
        self,
        *,
        access: Access,
        cluster: Cluster,
        cache: Cache,
        queue: WorkQueue[DeploymentKey],
        metrics: Metrics,
        namespaces: tuple[str, ...],
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._cache = cache
        self._queue = queue
        self._metrics = metrics
        self._namespaces = namespaces
        self._streams = Streams(())
        self._waiting_for = f"the API {DEPLOYMENTS.api_version} {DEPLOYMENTS.plural}"
        self._settling: set[asyncio.Task[None]] = set()
        self.synchronised = asyncio.Event()
        """Set once the cache holds all that existed when we came."""

    def problems(self) -> tuple[str, ...]:
        """Say in words why the cache may not be trusted just now."""
        waiting = (f"waiting for {self._waiting_for}",) if self._waiting_for else ()
        return waiting + self._streams.problems()

    async def run(self) -> None:
        """Watch, and start over when an optional API comes or goes.  Raises `WatchError` if the watcher fails."""
        kinds = await self._first_kinds()
        while True:
            kinds = await self._watch(kinds)
            logger.info("APIs changed", extra={"kinds": [kind.name for kind in kinds]})

    async def _watch(self, kinds: frozenset[Kind]) -> frozenset[Kind]:
        """Watch these kinds until the cluster serves others; return the others."""
        self._forget_all_but(kinds)
        ordered = sorted(kinds, key=lambda kind: (kind.order, kind.name))
        loop = asyncio.get_running_loop()
        streams = Streams(
            ordered, self._namespaces, on_relist=lambda stream: loop.call_soon_threadsafe(self._settle, stream)
        )
        self._streams = streams
        self._metrics.state.streams = tuple(streams)
        self._cache.served = kinds
        watch = Watch(self._access, streams, self.take_in)
        watch.start()
        ended = asyncio.create_task(watch.wait(), name="watch")
        changing = asyncio.create_task(self._changed_kinds(kinds), name="discovery")
        pending = {ended, changing, asyncio.create_task(self._synchronise(streams), name="first lists")}
        try:
            while True:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if ended in done:
                    return await self._others_than(kinds, ended)
                if changing in done:
                    return changing.result()
                for task in done:
                    task.result()  # the first lists are complete, or failed in a way that nobody foresaw
        finally:
            for task in (*pending, *self._settling):
                task.cancel()
            await watch.stop()

    async def _others_than(self, kinds: frozenset[Kind], ended: asyncio.Task[None]) -> frozenset[Kind]:
        """Find out whether the watcher tripped over an API that is gone; raise what ended it if that is not so."""
        try:
            served = await self._served()
        except ClusterError:
            served = kinds
        if served == kinds:
            ended.result()
        return served

    def _forget_all_but(self, kinds: frozenset[Kind]) -> None:
        served = {(kind.api_version, kind.name) for kind in kinds}
        for key in [key for key in self._cache if (key.api_version, key.kind) not in served]:
            entry = self._cache.entry(key)
            assert entry is not None
            self._drop(((key, entry),))

    async def _first_kinds(self) -> frozenset[Kind]:
        """Wait for our own API, whose definition may be installed after us."""
        told = False
        while True:
            try:
                if await self._cluster.serves(DEPLOYMENTS):
                    return await self._served()
                problem = "the cluster does not serve it"
            except ClusterError as error:
                problem = error.message
            if not told:
                logger.warning("waiting for our API", extra={"problem": problem})
                told = True
            await asyncio.sleep(1.0)

    async def _changed_kinds(self, kinds: frozenset[Kind]) -> frozenset[Kind]:
        while True:
            await asyncio.sleep(DISCOVERY_SECONDS * random.uniform(0.9, 1.1))  # noqa: S311 - spreads load
            try:
                served = await self._served()
            except ClusterError:
                continue
            if served != kinds:
                return served

    async def _served(self) -> frozenset[Kind]:
        optional = [kind for kind in (*KINDS, LEDGERS) if kind.optional]
        answers = await asyncio.gather(*(self._cluster.serves(kind) for kind in optional))
        present = [kind for kind, is_served in zip(optional, answers, strict=True) if is_served]
        whole = () if self._namespaces else (NAMESPACES,)  # who serves some has no rights beyond them
        return frozenset((DEPLOYMENTS, PODS, *whole, *(kind for kind in KINDS if not kind.optional), *present))

    async def _synchronise(self, streams: Streams) -> None:
        """Wait until the cache holds what the server lists, then look at every deployment."""
        self._waiting_for = "the first lists"
        pending = list(streams)
        while pending:
            await asyncio.sleep(POLL_SECONDS)
            if streams.problems():
                continue
            try:
                differences = [(stream, await compare(self._cluster, self._cache, stream)) for stream in pending]
            except ClusterError as error:
                logger.warning("cannot list", extra={"problem": error.message})
                await asyncio.sleep(1.0)
                continue
            for _, difference in differences:
                self._drop(difference.gone)
            pending = [stream for stream, difference in differences if difference.behind]
        self._waiting_for = ""
        for key in {*self._cache.deployments(), *claimants(self._cache, self._namespaces)}:
            self._queue.add(key)
        self.synchronised.set()
        logger.info("synchronised", extra={"objects": len(self._cache), "deployments": len(self._cache.deployments())})

    def take_in(self, event: str | None, thing: Manifest) -> None:
        """Take in one event of a watch; ask for a look at the deployments it concerns, before and after."""
        key = key_of(thing)
        known = self._cache.entry(key)
        if event == "DELETED":
            meta = thing["metadata"]
            is_news = self._cache.drop(key, uid=meta["uid"], resource_version=meta.get("resourceVersion", ""))
        else:
            is_news = self._cache.put(thing)
        now = self._cache.entry(key)
        if is_news and not (key.kind == LEASES.name and is_renewal(known, now)):
            self._tell(key, known, now)

    def _tell(self, key: Key, before: Entry | None, now: Entry | None) -> None:
        """Ask for a look at the deployments that a change concerns."""
        changed = {entry.deployment for entry in (before, now) if entry and entry.deployment}
        if key == LEDGER:
            changed |= concerned(before, now, self._cache, self._namespaces)
        if key.kind == NAMESPACES.name and self._cache.is_leaving(key.name):
            changed |= {one for one in self._cache.deployments() if one.namespace == key.name}
        for deployment in changed:
            self._queue.add(deployment)

    def _settle(self, stream: Stream) -> None:
        """Find out what was deleted while a watch was away."""

        async def settle() -> None:
            await asyncio.sleep(SETTLE_SECONDS)
            while True:
                try:
                    self._drop((await compare(self._cluster, self._cache, stream)).gone)
                except ClusterError:
                    await asyncio.sleep(SETTLE_SECONDS)
                else:
                    return

        task = asyncio.create_task(settle(), name=f"settle {stream}")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def resync(self, *, spread_seconds: float) -> None:
        """Correct the cache where the watches failed to, then look at every deployment, spread over some time."""
        for stream in self._streams:
            difference = await compare(self._cluster, self._cache, stream)
            self._drop(difference.gone)
            if difference.behind:
                await asyncio.sleep(BEHIND_SECONDS)
                for key in (await compare(self._cluster, self._cache, stream)).behind:
                    await self._catch_up(key)
        for deployment in {*self._cache.deployments(), *claimants(self._cache, self._namespaces)}:
            self._queue.add(deployment, after_seconds=random.uniform(0.0, spread_seconds))  # noqa: S311 - spreads load

    async def _catch_up(self, key: Key) -> None:
        """Read what a deaf watch did not tell."""
        live = await self._cluster.get(key)
        if live is not None:
            logger.warning("a watch is behind", extra={"object": str(key)})
            self._metrics.swept.labels("behind").inc()
            self.take_in("MODIFIED", live)

    def _drop(self, gone: tuple[tuple[Key, Entry], ...]) -> None:
        for key, entry in gone:
            if self._cache.drop(key, uid=entry.uid):
                self._metrics.swept.labels("gone").inc()
                self._tell(key, entry, None)
