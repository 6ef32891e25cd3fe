"""What became of objects that were to be written: each one's verdict, and a round's sum of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import Key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable


class Failure(NamedTuple):
    """An object that the API server refused, in the server's own words.

    `reason` is the server's (Forbidden, Invalid, …), or `NoSuchAPI` where the kind's API is not installed.
    """

    key: Key
    message: str
    reason: str = ""
    transient: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """What one round of apply and prune came to."""

    applied: tuple[Key, ...] = ()
    unchanged: int = 0
    pruned: tuple[Key, ...] = ()
    foreign: tuple[Key, ...] = ()  # exist, and somebody else controls them: left alone
    waiting: tuple[Key, ...] = ()  # on their way out, ours or a predecessor's of the same name: an event will tell
    failed: tuple[Failure, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all that is wished is in place."""
        return not (self.foreign or self.waiting or self.failed)


class Verdict(Enum):
    APPLIED = auto()
    UNCHANGED = auto()
    PRUNED = auto()
    FOREIGN = auto()
    WAITING = auto()
    FAILED = auto()


class Outcome(NamedTuple):
    verdict: Verdict
    key: Key
    failure: Failure | None = None


async def together(work: Iterable[Awaitable[Outcome]]) -> list[Outcome]:
    """Wait for all, so that no write is under way when the first error is raised."""
    results = await asyncio.gather(*work, return_exceptions=True)
    outcomes = [result for result in results if isinstance(result, Outcome)]
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return outcomes


async def guarded(key: Key, work: Awaitable[Outcome]) -> Outcome:
    try:
        return await work
    except ClusterError as error:
        if error.status == 0:
            raise
        return Outcome(Verdict.FAILED, key, Failure(key, error.message, error.reason, error.transient))


def summary(outcomes: Iterable[Outcome]) -> Applied:
    every = list(outcomes)

    def keys(verdict: Verdict) -> tuple[Key, ...]:
        return tuple(o.key for o in every if o.verdict is verdict)

    return Applied(
        applied=keys(Verdict.APPLIED),
        unchanged=len(keys(Verdict.UNCHANGED)),
        pruned=keys(Verdict.PRUNED),
        foreign=keys(Verdict.FOREIGN),
        waiting=keys(Verdict.WAITING),
        failed=tuple(outcome.failure for outcome in every if outcome.failure is not None),
    )
