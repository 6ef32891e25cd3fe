"""A headless rank as the operator's probe sees it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path

import pytest
from kvpp_engine_simulator.local import LOOPBACK, LocalEngine, free_ports

from kvpp_operator.render.lifecycle import RANK_WORKS

RANKS = ["/weights/GLM-5.2", "--tensor-parallel-size", "4", "--pipeline-parallel-size", "2", "--enforce-eager"]


def rank(number: int, master: int, *more: str) -> list[str]:
    place = ("--nnodes", "2", "--node-rank", str(number), "--master-addr", LOOPBACK, "--master-port", str(master))
    return [*RANKS, "--distributed-executor-backend", "mp", *place, *more]


async def probe(prefix: str, master: int) -> tuple[int, str]:
    environment = {**os.environ, "VLLM_PROCESS_NAME_PREFIX": prefix, "LWS_LEADER_ADDRESS": LOOPBACK}
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", RANK_WORKS, "rank", "4", str(master), env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode().strip().replace(str(master), "PORT")


def workers(prefix: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if title.startswith(f"{prefix}::Worker".encode()):
            found.append(int(folder.name))
    return found


async def test_the_probe_follows_workers_and_head(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, master = f"T{secrets.token_hex(4)}", free_ports()
    monkeypatch.setenv("VLLM_PROCESS_NAME_PREFIX", prefix)
    assert await probe(prefix, master) == (1, "0 of 4 worker processes are alive")
    head, worker = LocalEngine(rank(0, master)), LocalEngine(rank(1, master, "--headless"))
    await asyncio.gather(head.__aenter__(), worker.__aenter__())
    assert await probe(prefix, master) == (0, "")
    await head.stop()
    with pytest.raises(Exception, match="the head is gone"):
        await worker.ended()
    assert workers(prefix) == []


async def test_a_killed_worker_ends_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, master = f"T{secrets.token_hex(4)}", free_ports()
    monkeypatch.setenv("VLLM_PROCESS_NAME_PREFIX", prefix)
    head, worker = LocalEngine(rank(0, master)), LocalEngine(rank(1, master, "--headless"))
    await asyncio.gather(head.__aenter__(), worker.__aenter__())
    os.kill(workers(prefix)[0], signal.SIGKILL)
    with pytest.raises(Exception, match=r"Worker proc VllmWorker-\d died unexpectedly"):
        await worker.ended()
    with pytest.raises(Exception, match="worker of node rank 1 died unexpectedly"):
        await head.ended()
