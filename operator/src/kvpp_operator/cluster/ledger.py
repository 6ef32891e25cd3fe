"""The port ledger in the cluster: every turn of this process on it, several turns in one write.

A turn gets the ledger as it is stored now and gives it back as it should be. It is written by compare-and-swap; when
another writer was faster, every turn is taken anew on what he wrote. Turns that come in while a write is under way wait
and go together, so a hundred deployments created at once cost a few writes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kvpp_operator import names
from kvpp_operator.cluster.client import Conflict
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.ledger.claim import Claim, Ledger
from kvpp_operator.ledger.crd import KIND, NAME, ledger_object
from kvpp_operator.ledger.live import holder_of, live_claims
from kvpp_operator.ledger.settle import rebuild
from kvpp_operator.ledger.wire import Parsed, dump, parse
from kvpp_operator.manifest import API_VERSION, KINDS, PODS, DeploymentKey, Key, Kind, Manifest

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.ledger.claim import Holder

logger = logging.getLogger(__name__)

KEY = Key(API_VERSION, KIND, "", NAME)
ENGINES = (*(kind for kind in KINDS if kind.name in ("Deployment", "LeaderWorkerSet")), PODS)
"""Kinds that show which ports engines have."""

ATTEMPTS = 20
PAUSE_SECONDS = 0.02
"""Longest pause after the first lost race; it grows with each, and is drawn at random so that two writers part."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Look = tuple[Claim, ...] | None
"""All ports that engines of the whole cluster show, read after the ledger; None: nobody looked, nothing was suspicious."""


class NeedsLook(Exception):  # noqa: N818 - a wish, not a failure
    """Raised by a turn without a look: the ledger disagrees with what it knows of its own engines."""


class Turn(Protocol[T_co]):
    """One deployment's wish. It changes nothing itself and may be taken several times, each time from the beginning."""

    async def prepare(self, ledger: Ledger, look: Look) -> None:
        """Read what the decision needs, now that the ledger was read. Turns of a batch do so side by side."""

    def take(self, ledger: Ledger, look: Look) -> tuple[Ledger, T_co]:
        """Make of the ledger, healed by the look and with what the batch did before, what it should be; and answer."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The ledger as it was read. `spec` and `resource_version` are the object's; None and "" when there is none."""

    ledger: Ledger
    look: Look
    spec: Any
    resource_version: str


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    turn: Turn[T]
    answer: asyncio.Future[T]


class LedgerKeeper:
    """One per process."""

    def __init__(self, cluster: Cluster, cache: Cache) -> None:
        self._cluster = cluster
        self._cache = cache
        self._waiting: list[Waiting[Any]] = []
        self._serving: asyncio.Task[None] | None = None
        self._seen: Ledger | None = None

    async def take(self, turn: Turn[T]) -> T:
        """Take a turn; when this returns, what it decided stands in the cluster.

        Raises what the turn raises, and `ClusterError`.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(turn, answer))
        # A task of its own: who waits may be cancelled, and those who wait beside him must not be.
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="port ledger")
        return await answer

    async def _serve(self) -> None:
        while self._waiting:
            batch, self._waiting = [one for one in self._waiting if not one.answer.done()], []
            try:
                answers = await self._decide_and_write(batch)
            except Exception as problem:  # noqa: BLE001 - whatever it was, each of those who wait must hear of it
                answers = [problem] * len(batch)
            for waiting, answer in zip(batch, answers, strict=True):
                if waiting.answer.done():
                    continue
                if isinstance(answer, Exception):
                    waiting.answer.set_exception(answer)
                else:
                    waiting.answer.set_result(answer)

    async def _decide_and_write(self, batch: list[Waiting[Any]]) -> list[Any]:
        """Answers in the order of the batch; an error of one turn is that one's answer."""
        look, lost_races = False, 0
        while lost_races < ATTEMPTS:
            stored = await self._read(look=look)
            try:
                ledger, answers = await in_turn(batch, stored)
            except NeedsLook:
                look = True
                continue
            spec = dump(ledger)
            if spec == stored.spec:
                self._seen = ledger
                return answers
            if await self._write(spec, stored.resource_version):
                self._seen = ledger
                about = {"turns": len(batch), "lost_races": lost_races, **spec["summary"]}
                logger.info("port ledger written", extra=about)
                return answers
            lost_races += 1
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * lost_races))  # noqa: S311 - two writers part
        raise ClusterError(HTTPStatus.CONFLICT, "Conflict", f"{KEY} was changed by others {ATTEMPTS} times in a row")

    async def _read(self, *, look: bool) -> Stored:
        """Read the ledger, and what runs after it: the package's docstring says why in this order."""
        found = await self._cluster.get(KEY)
        spec, version = (found["spec"], found["metadata"]["resourceVersion"]) if found else (None, "")
        parsed = parse(spec)
        reason = "an engine shows other ports" if look else self._suspicion(spec, parsed)
        if not reason:
            return Stored(parsed.ledger, None, spec, version)
        live = live_claims(await shown(self._cluster))
        rebuilt = rebuild(parsed.ledger, live)
        logger.info("port ledger compared with what runs", extra={"because": reason, "running": len(live)})
        for entry in parsed.dropped:
            logger.warning("port ledger: unreadable entry dropped", extra={"entry": str(entry)})
        for change in rebuilt.changes:
            logger.warning("port ledger healed", extra={"change": change.message})
        return Stored(rebuilt.ledger, live, spec, version)

    def _suspicion(self, spec: object, parsed: Parsed) -> str:
        """Why the stored ledger can't be trusted; "" when nothing speaks against it.

        To list all that runs for every turn would cost too much in a big cluster, so traces of a hand are looked for.
        """
        if spec is None:
            return "the ledger does not exist"
        if parsed.dropped:
            return "the ledger has unreadable entries"
        if not parsed.ledger.is_sound():
            return "claims overlap"
        if self._seen is None:
            return "this process sees it for the first time"
        lost = set(self._seen) - set(parsed.ledger)
        if any(self._is_shown(claim.holder) for claim in lost):
            return "claims have vanished although their engines are there"
        return ""

    def _is_shown(self, holder: Holder) -> bool:
        key = DeploymentKey(holder.owner.namespace, holder.owner.name)
        holders = {holder_of(manifest) for manifest in (*self._cache.owned(key), *self._cache.pods(key))}
        return not holders.isdisjoint((holder, holder.without_uid))

    async def _write(self, spec: dict[str, Any], resource_version: str) -> bool:
        manifest = ledger_object(spec, resource_version)
        write = self._cluster.replace if resource_version else self._cluster.create
        return not isinstance(await write(manifest), Conflict)


async def in_turn(batch: list[Waiting[Any]], stored: Stored) -> tuple[Ledger, list[Any]]:
    """Take each turn on what the one before made of the ledger; one deployment's trouble stops no other."""
    preparing = (waiting.turn.prepare(stored.ledger, stored.look) for waiting in batch)
    problems = await asyncio.gather(*preparing, return_exceptions=True)
    ledger, answers = stored.ledger, []
    for waiting, problem in zip(batch, problems, strict=True):
        if isinstance(problem, NeedsLook) or not isinstance(problem, Exception | None):
            raise problem
        answer: Any = problem
        if problem is None:
            try:
                ledger, answer = waiting.turn.take(ledger, stored.look)
            except Exception as error:  # noqa: BLE001 - an error of ours is that turn's answer
                answer = error
        answers.append(answer)
    return ledger, answers


async def shown(cluster: Cluster, deployment: DeploymentKey | None = None) -> list[Manifest]:
    """Read workloads of ours and pods of engines, of the whole cluster or of one deployment."""
    found = await asyncio.gather(*(_shown(cluster, kind, deployment) for kind in ENGINES))
    return [item for items in found for item in items]


async def _shown(cluster: Cluster, kind: Kind, deployment: DeploymentKey | None) -> list[Manifest]:
    marked = names.DEPLOYMENT if kind == PODS else f"{names.MANAGED_BY}={names.FIELD_MANAGER}"
    labels = f"{names.DEPLOYMENT}={deployment.name}" if deployment else marked
    namespace = deployment.namespace if deployment else ""
    try:
        return [item async for item in cluster.list(kind, namespace=namespace, labels=labels)]
    except ClusterError as problem:
        if problem.status != HTTPStatus.NOT_FOUND:  # an optional API that is absent holds nothing
            raise
        return []
