"""Which deployment is looked at next: each at most once in the queue, never twice at a time, failures ever more rarely.

`Schedule` decides and knows no clock; `WorkQueue` runs what it decides.  The promises are those of client-go's
workqueue: k8s.io/client-go/util/workqueue.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

K = TypeVar("K", bound=Hashable)
Seen_contra = TypeVar("Seen_contra", contravariant=True)

BACKOFF_SECONDS = 0.05
BACKOFF_LIMIT_SECONDS = 60.0


class Schedule(Generic[K]):
    """Keys that are due at some time, keys that run, and how often each has failed in a row."""

    def __init__(self, jitter: Callable[[], float] = lambda: 1.0) -> None:
        self._jitter = jitter
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._turn = itertools.count()  # first come, first served among keys due at the same time
        self._running: set[K] = set()
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._due)

    @property
    def running(self) -> frozenset[K]:
        return frozenset(self._running)

    def add(self, key: K, due: float) -> None:
        """Ask for a look at `key` at a time; a key that waits already is looked at once, at the earlier time."""
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        if key not in self._running:  # else when it is done
            heapq.heappush(self._heap, (due, next(self._turn), key))

    def next_due(self) -> float | None:
        """Time at which `take` will have something, as far as is known now."""
        while self._heap and not self._is_current(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> K | None:
        """Start the key that has been due for longest."""
        due = self.next_due()
        if due is None or due > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._running.add(key)
        return key

    def succeeded(self, key: K) -> None:
        """Finish a look; the next failure counts as the first."""
        self._failures.pop(key, None)
        self._stop(key)

    def failed(self, key: K, now: float) -> float:
        """Finish a look in vain, and ask for another: seconds until then, doubling with each failure in a row."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = min(BACKOFF_SECONDS * 2.0 ** min(failures - 1, 32), BACKOFF_LIMIT_SECONDS) * self._jitter()
        self._stop(key)
        self.add(key, now + seconds)
        return seconds

    def _stop(self, key: K) -> None:
        self._running.remove(key)
        if key in self._due:
            heapq.heappush(self._heap, (self._due[key], next(self._turn), key))

    def _is_current(self, due: float, _: int, key: K) -> bool:
        return key not in self._running and self._due.get(key) == due


class Observer(Protocol[Seen_contra]):
    """Told when a look is over; `retry_seconds` is set beside an error only."""

    def __call__(self, key: Seen_contra, seconds: float, error: Exception | None, retry_seconds: float) -> None: ...


class WorkQueue(Generic[K]):
    """Calls `work(key)` for each key added, a few at a time; its answer is the seconds until the next look, or None."""

    def __init__(
        self, work: Callable[[K], Awaitable[float | None]], *, workers: int, observe: Observer[K] = lambda *_: None
    ) -> None:
        self._work = work
        self._workers = workers
        self._observe = observe
        self._schedule: Schedule[K] = Schedule(lambda: random.uniform(0.8, 1.2))  # noqa: S311 - spreads load
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._stopping = False

    def __len__(self) -> int:
        """Count the keys that wait, those included that are due later."""
        return len(self._schedule)

    @property
    def busy(self) -> int:
        return len(self._tasks)

    def add(self, key: K, *, after_seconds: float = 0.0) -> None:
        """Ask for a look.  Only from the event loop that runs the queue."""
        self._schedule.add(key, time.monotonic() + after_seconds)
        self._changed.set()

    def stop(self) -> None:
        """Start nothing more; `run` returns when the looks in flight are over."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Work until `stop`; cancelled, the looks in flight are cancelled too."""
        try:
            while not self._stopping:
                self._changed.clear()
                self._start_what_is_due()
                await self._wait()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()

    def _start_what_is_due(self) -> None:
        while len(self._tasks) < self._workers:
            key = self._schedule.take(time.monotonic())
            if key is None:
                return
            task = asyncio.create_task(self._look(key), name=f"reconcile {key}")
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    async def _wait(self) -> None:
        due = self._schedule.next_due() if len(self._tasks) < self._workers else None
        try:
            async with asyncio.timeout(None if due is None else max(due - time.monotonic(), 0.0)):
                await self._changed.wait()
        except TimeoutError:
            return

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def _look(self, key: K) -> None:
        started = time.monotonic()
        error: Exception | None = None
        retry_seconds = 0.0
        try:
            again = await self._work(key)
        except Exception as caught:  # noqa: BLE001 - whatever goes wrong with one deployment, the others go on
            error = caught
            retry_seconds = self._schedule.failed(key, time.monotonic())
        except asyncio.CancelledError:
            self._schedule.succeeded(key)
            raise
        else:
            self._schedule.succeeded(key)
            if again is not None:
                self._schedule.add(key, time.monotonic() + again)
        self._observe(key, time.monotonic() - started, error, retry_seconds)
