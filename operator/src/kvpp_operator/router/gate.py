"""The door in front of the proxy: open while the router may serve; callers wait a little in front of a closed one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from kvpp_operator.router.standing import STARTING, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Counter:
    """People in a room, and a way to wait until it is empty."""

    def __init__(self, emptied: Callable[[], None] | None = None) -> None:
        self.present = 0
        self.total = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._emptied = emptied

    @contextlib.contextmanager
    def visit(self) -> Iterator[None]:
        self.present += 1
        self.total += 1
        self._empty.clear()
        try:
            yield
        finally:
            self.present -= 1
            if not self.present:
                self._empty.set()
                if self._emptied is not None:
                    self._emptied()

    async def empties_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return not self.present


class Gate:
    """Open or closed, and who is behind it.

    `inside`: all that are being passed through. `unanswered`: those without an answer yet, perhaps on the way from
    prefill to decode; `quiet` is called when the last of them got one.
    """

    def __init__(self, quiet: Callable[[], None]) -> None:
        self.standing: Standing = STARTING
        self.inside = Counter()
        self.unanswered = Counter(quiet)
        self._open = asyncio.Event()

    def set(self, standing: Standing) -> None:
        self.standing = standing
        if standing.is_ready:
            self._open.set()
        else:
            self._open.clear()

    async def opens_within(self, seconds: float) -> bool:
        """Whether the door is open, or opens before the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._open.wait()
        return self._open.is_set()
