"""Simulated engines on this machine, with real sockets on loopback: for tests and for trying things out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
from typing import TYPE_CHECKING, Self

from kvpp_engine_simulator.launch import Node, StartError, Stopped
from kvpp_engine_simulator.refusal import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOOPBACK = "127.0.0.1"
QUICK = {"VLLM_HOST_IP": LOOPBACK, "SIMULATOR_LOAD_SECONDS": "0", "SIMULATOR_TOKEN_SECONDS": "0"}
START_SECONDS = 180.0
"""Two cores may be busy with much else."""


def free_ports(count: int = 1) -> int:
    """First of some consecutive ports that nobody on loopback listens on, below the ephemeral ones."""
    while True:
        first = random.randrange(10000, 32000 - count)  # noqa: S311 - no secret hangs on it
        if all(is_free(port) for port in range(first, first + count)):
            return first


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


class Local:
    """What both forms of a local engine share: where it listens and what it is told."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str] | None = None, *, port: int = 0, host: str = LOOPBACK
    ) -> None:
        self.port, self.host = port or free_ports(), host
        self.arguments = [*arguments, "--host", host, "--port", str(self.port)]
        self.env = {**QUICK, **(env or {})}

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"


class LocalEngine(Local):
    """An engine inside this process. Use as `async with LocalEngine(arguments) as engine`: it has started then.

    Entering raises what its start does: `RefusedError`, `OSError`, `StartError`, `RendezvousError`.
    """

    def create(self) -> Node:
        return Node(*prepare(self.arguments, self.env))

    async def __aenter__(self) -> Self:
        self.node = self.create()
        self._running = asyncio.create_task(self.node.run())
        starting = asyncio.create_task(self.node.started.wait())
        async with asyncio.timeout(START_SECONDS):
            await asyncio.wait([self._running, starting], return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if not self.node.started.is_set():
            await self._running
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError, StartError, Stopped):
            await self._running

    async def ended(self) -> None:
        """Wait for its end. Raises what it ends with."""
        async with asyncio.timeout(START_SECONDS):
            await self._running

    async def stop(self) -> None:
        """End it as SIGTERM does, and wait for the end."""
        self.node.stop.set()
        with contextlib.suppress(Stopped):
            await self._running


class EngineProcess(Local):
    """An engine as a process of its own. Use as `async with EngineProcess(arguments) as engine`."""

    async def __aenter__(self) -> Self:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SIMULATOR_", "VLLM_"))}
        self.output: list[str] = []
        self._grown = asyncio.Condition()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "kvpp_engine_simulator",
            "serve",
            *self.arguments,
            env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **self.env},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)
        await self.exit_code()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            async with self._grown:
                self.output.append(line.decode(errors="replace").rstrip())
                self._grown.notify_all()
        async with self._grown:
            self._grown.notify_all()

    async def says(self, words: str) -> None:
        """Wait until its log has these words. Raises `AssertionError` with the log when it ends without."""

        def said() -> bool:
            return any(words in line for line in self.output)

        stderr = self._process.stderr
        assert stderr is not None
        async with asyncio.timeout(START_SECONDS), self._grown:
            await self._grown.wait_for(lambda: said() or stderr.at_eof())
        assert said(), f"{words!r} was not said:\n" + "\n".join(self.output)

    async def exit_code(self) -> int:
        """Wait for the end, whole log included."""
        async with asyncio.timeout(START_SECONDS):
            code = await self._process.wait()
            await self._reading
        return code

    async def ask(self, body: object) -> None:
        """Send a completion request and wait for nothing."""
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {self.address}\r\nContent-Length: {len(data)}\r\n\r\n"
        _, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(head.encode() + data)
        await writer.drain()
        writer.close()

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


def prefill(kv_port: int, *more: str, model: str = "/weights/GLM-5.2-W4A8C8") -> list[str]:
    """Arguments of a prefill engine with KVPP, TP8: its control port is kv_port + 8."""
    transfer = {"kv_connector": "MooncakeConnectorV2", "kv_role": "kv_producer", "kv_port": kv_port}
    return [
        *(model, "--served-model-name", "glm", "--tensor-parallel-size", "8", "--enforce-eager"),
        *(
            "--additional-config",
            json.dumps({"enable_kvpp": True}),
            "--kv-transfer-config",
            json.dumps(transfer),
            *more,
        ),
    ]


def decode(kv_port: int, *more: str, policy: str = "fail", model: str = "/weights/GLM-5.2-W4A8C8") -> list[str]:
    transfer = {"kv_connector": "MooncakeConnectorV2", "kv_role": "kv_consumer", "kv_port": kv_port}
    transfer["kv_load_failure_policy"] = policy
    graph = json.dumps({"cudagraph_mode": "FULL_DECODE_ONLY"})
    return [
        *(model, "--served-model-name", "glm", "--compilation-config", graph),
        *("--kv-transfer-config", json.dumps(transfer), *more),
    ]
