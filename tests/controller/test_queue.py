"""The queue's promises: nothing asked for is forgotten, nothing runs twice at a time, failures get rarer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvpp_operator.controller.queue import BACKOFF_LIMIT_SECONDS, BACKOFF_SECONDS, Schedule, WorkQueue


class TestSchedule:
    def test_first_come_first_served(self) -> None:
        schedule: Schedule[str] = Schedule()
        for key in "cab":
            schedule.add(key, 0.0)
        assert [schedule.take(0.0) for _ in range(4)] == ["c", "a", "b", None]

    def test_a_key_waits_once_at_its_earliest_time(self) -> None:
        schedule: Schedule[str] = Schedule()
        for due in (5.0, 3.0, 4.0):
            schedule.add("a", due)
        assert (len(schedule), schedule.next_due()) == (1, 3.0)
        assert schedule.take(2.9) is None
        assert schedule.take(3.0) == "a"
        assert schedule.take(9.0) is None

    def test_asked_for_while_it_runs_it_runs_again_afterwards(self) -> None:
        schedule: Schedule[str] = Schedule()
        schedule.add("a", 0.0)
        assert schedule.take(0.0) == "a"
        schedule.add("a", 0.0)
        assert schedule.take(0.0) is None
        schedule.succeeded("a")
        assert schedule.take(0.0) == "a"

    def test_failures_double_up_to_a_limit_and_a_success_forgives(self) -> None:
        schedule: Schedule[str] = Schedule()
        delays = []
        now = 0.0
        for _ in range(14):
            schedule.add("a", now)
            assert schedule.take(now) == "a"
            delays.append(schedule.failed("a", now))
            now += delays[-1]
        assert delays == [min(BACKOFF_SECONDS * 2**n, BACKOFF_LIMIT_SECONDS) for n in range(14)]
        assert schedule.take(now) == "a"
        schedule.succeeded("a")
        schedule.add("a", now)
        assert schedule.take(now) == "a"
        assert schedule.failed("a", now) == BACKOFF_SECONDS

    def test_an_event_does_not_wait_for_the_back_off(self) -> None:
        schedule: Schedule[str] = Schedule()
        schedule.add("a", 0.0)
        schedule.take(0.0)
        schedule.failed("a", 0.0)
        schedule.add("a", 0.0)
        assert schedule.take(0.0) == "a"


KEYS = st.sampled_from("abc")
DELAYS = st.integers(0, 5)


class Machine(RuleBasedStateMachine):
    """Any order of events; a model that only remembers what was asked for and when."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule[str] = Schedule()
        self.now = 0.0
        self.asked: dict[str, float] = {}  # key → time of the next look that is owed
        self.running: set[str] = set()

    @rule(key=KEYS, delay=DELAYS)
    def add(self, key: str, delay: int) -> None:
        self.schedule.add(key, self.now + delay)
        self.asked[key] = min(self.asked.get(key, float("inf")), self.now + delay)

    @rule(seconds=DELAYS)
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        eligible = {key: due for key, due in self.asked.items() if due <= self.now and key not in self.running}
        taken = self.schedule.take(self.now)
        if not eligible:
            assert taken is None
            return
        assert taken in eligible
        assert eligible[taken] == min(eligible.values())
        del self.asked[taken]
        self.running.add(taken)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def succeed(self, data: Any) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.schedule.succeeded(key)
        self.running.remove(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data: Any) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        seconds = self.schedule.failed(key, self.now)
        self.running.remove(key)
        self.asked[key] = min(self.asked.get(key, float("inf")), self.now + seconds)

    @invariant()
    def owes_what_the_model_owes(self) -> None:
        assert len(self.schedule) == len(self.asked)
        assert self.schedule.running == self.running
        owed = [due for key, due in self.asked.items() if key not in self.running]
        assert self.schedule.next_due() == (min(owed) if owed else None)


TestAnyOrder = Machine.TestCase


class Work:
    """Work that can be held, and that notes what runs together."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        self.together: set[str] = set()
        self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = asyncio.Event()
        self.failures: dict[str, int] = {}
        self.again: dict[str, float] = {}

    async def __call__(self, key: str) -> float | None:
        assert key not in self.together, "one key runs once at a time"
        self.together.add(key)
        self.most = max(self.most, len(self.together))
        try:
            self.looks.append(key)
            self.started.set()
            await asyncio.sleep(0)
            await self.gate.wait()
            if self.failures.get(key, 0):
                self.failures[key] -= 1
                raise RuntimeError("on purpose")
        finally:
            self.together.remove(key)
        return self.again.pop(key, None)


async def drained(queue: WorkQueue[str]) -> None:
    """Wait until nothing waits and nothing runs, then end the queue."""
    async with asyncio.timeout(5.0):
        while len(queue) or queue.busy:  # noqa: ASYNC110 - the queue has no event for what a test wants to know
            await asyncio.sleep(0.005)
    queue.stop()


async def run(queue: WorkQueue[str]) -> None:
    async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
        group.create_task(queue.run())
        group.create_task(drained(queue))


class TestWorkQueue:
    async def test_every_key_once(self) -> None:
        work = Work()
        queue = WorkQueue(work, workers=2)
        for key in "abcabc":
            queue.add(key)
        await run(queue)
        assert work.looks == ["a", "b", "c"]

    async def test_no_more_at_once_than_workers(self) -> None:
        work = Work()
        queue = WorkQueue(work, workers=3)
        for number in range(20):
            queue.add(str(number))
        await run(queue)
        assert (len(work.looks), work.most) == (20, 3)

    async def test_a_burst_while_it_runs_is_one_more_look(self) -> None:
        work = Work()
        work.gate.clear()
        queue = WorkQueue(work, workers=4)
        queue.add("a")
        running = asyncio.create_task(queue.run())
        await work.started.wait()
        for _ in range(50):
            queue.add("a")
        work.gate.set()
        await drained(queue)
        await running
        assert work.looks == ["a", "a"]

    async def test_failures_are_repeated_and_observed(self) -> None:
        work = Work()
        work.failures["a"] = 2
        seen: list[tuple[str, str, bool]] = []
        queue = WorkQueue(
            work, workers=1, observe=lambda key, _, error, retry: seen.append((key, str(error), retry > 0))
        )
        queue.add("a")
        queue.add("b")
        await run(queue)
        assert sorted(seen) == [
            ("a", "None", False),
            ("a", "on purpose", True),
            ("a", "on purpose", True),
            ("b", "None", False),
        ]

    async def test_the_answer_says_when_to_look_again(self) -> None:
        work = Work()
        work.again["a"] = 0.01
        queue = WorkQueue(work, workers=1)
        queue.add("a")
        await run(queue)
        assert work.looks == ["a", "a"]

    async def test_a_later_look_does_not_hold_up_an_earlier_one(self) -> None:
        work = Work()
        queue = WorkQueue(work, workers=1)
        queue.add("late", after_seconds=0.05)
        queue.add("now")
        await run(queue)
        assert work.looks == ["now", "late"]

    async def test_stop_finishes_what_is_in_flight_and_starts_nothing(self) -> None:
        work = Work()
        work.gate.clear()
        queue = WorkQueue(work, workers=1)
        queue.add("a")
        queue.add("b")
        running = asyncio.create_task(queue.run())
        await work.started.wait()
        queue.stop()
        await asyncio.sleep(0.01)
        assert not running.done()
        work.gate.set()
        await asyncio.wait_for(running, 1.0)
        assert work.looks == ["a"]

    async def test_cancelled_it_cancels_what_is_in_flight(self) -> None:
        work = Work()
        work.gate.clear()
        queue = WorkQueue(work, workers=1)
        queue.add("a")
        running = asyncio.create_task(queue.run())
        await work.started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0)
        assert work.together == set()
