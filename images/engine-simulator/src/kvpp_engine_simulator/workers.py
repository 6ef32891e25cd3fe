"""The worker processes of a node rank, one an NPU. They do nothing but be there.

The real ones carry a title, `VLLM::Worker_…`, and the kubelet's probe of a headless rank counts them by it. One that ends takes
the node with it, as in the real engine.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.subprocess import Process

PREFIX = "VLLM_PROCESS_NAME_PREFIX"
SLEEP = 'trap "exit 0" TERM; while read -r _; do :; done'
"""Until the parent, which holds the other end of the pipe, is gone: no worker outlives its engine."""


class Workers:
    """Processes by their rank on the node. `start`, then `close`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: list[Process] = []

    async def start(self) -> None:
        prefix = os.environ.get(PREFIX, "VLLM")
        for rank in range(self._count):
            title = f"{prefix}::Worker_TP{rank}"
            command = ("bash", "-c", 'exec -a "$0" bash -c "$1"', title, SLEEP)
            self._processes.append(await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE))

    async def lose_one(self) -> str:
        """Wait until a worker is gone and tell which, as vLLM does."""
        waiting = {asyncio.ensure_future(one.wait()): rank for rank, one in enumerate(self._processes)}
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        first = next(iter(done))
        return f"Worker proc VllmWorker-{waiting[first]} died unexpectedly (exit code: {first.result()})"

    async def close(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
        for process in self._processes:
            await process.wait()
