"""A router on loopback: the real P/D proxy as a process, our agent in this one, engines simulated with real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from kvpp_engine_simulator.local import LOOPBACK, LocalEngine, decode, free_ports, prefill

from kvpp_operator import names
from kvpp_operator.router.agent import serve
from kvpp_operator.router.members import Policy
from kvpp_operator.router.settings import Settings
from kvpp_operator.router.standing import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from kvpp_operator.router.conductor import Conductor
    from kvpp_operator.router.standing import Report

SECONDS = 180.0
"""For what takes a moment on a machine that does nothing else: the machine may be busy with much else."""

QUICK = Policy(look_seconds=0.1, hold_seconds=0.1)


class RealProxy:
    """The script of one release as a process; `folder` holds it, `packages` what it imports."""

    def __init__(self, script: Path, packages: Path, api_key: str = "") -> None:
        self.port = free_ports()
        self._script, self._packages, self._api_key = script, packages, api_key
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(self._packages)}
        if self._api_key:
            env["OPENAI_API_KEY"] = self._api_key
        self._process = subprocess.Popen(
            [sys.executable, str(self._script), "--host", LOOPBACK, "--port", str(self.port), "--waiting-retry-interval", "0.2"],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@dataclass
class Engines:
    """What the cluster would say of the engines that run here."""

    conductor: Conductor

    def are(self, *groups: Group) -> None:
        """From now on exactly these, in EndpointSlices as Kubernetes writes them."""
        self.conductor.slices_seen({piece["metadata"]["name"]: piece for group in groups for piece in group.slices()})

    def serve_revision(self, revision: str) -> None:
        self.conductor.service_seen({"router": {"metadata": {"labels": {names.REVISION: revision}}}})


@dataclass(frozen=True)
class Group:
    """Engines of one revision; those in `stopping` are about to end."""

    revision: str
    prefill: tuple[LocalEngine, ...]
    decode: tuple[LocalEngine, ...]
    stopping: tuple[LocalEngine, ...] = ()

    def slices(self) -> Iterable[dict[str, Any]]:
        for role, engines in (("prefill", self.prefill), ("decode", self.decode)):
            for number, engine in enumerate(engines):
                labels = {names.ROLE: role, names.REVISION: self.revision}
                conditions = {"ready": engine not in self.stopping, "terminating": engine in self.stopping}
                yield {
                    "metadata": {"name": f"{role}-{self.revision}-{number}", "labels": labels},
                    "addressType": "IPv4",
                    "ports": [{"name": "http", "port": engine.port}],
                    "endpoints": [
                        {"addresses": [LOOPBACK], "conditions": conditions, "targetRef": {"uid": str(engine.port)}}
                    ],
                }


class Router:
    """The agent behind its address."""

    def __init__(self, settings: Settings) -> None:
        self.url = f"http://{settings.listen}"
        self.settings = settings
        self.stop = asyncio.Event()
        self.engines: Engines
        self._report: Report | None = None
        self._news = asyncio.Condition()
        self._telling: set[asyncio.Task[None]] = set()

    def informed(self, conductor: Conductor) -> list[Any]:
        self.engines = Engines(conductor)
        conductor.published = self._published
        return []

    def _published(self, report: Report) -> None:
        if report != self._report:
            self._report = report
            telling = asyncio.create_task(self._tell())
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def until(self, what: Callable[[Report], bool], seconds: float = SECONDS) -> Report:
        """Wait for a report. Raises `AssertionError` with the last one."""

        def matches() -> bool:
            return self._report is not None and what(self._report)

        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(matches)
        except TimeoutError:
            raise AssertionError(f"waited in vain; the last report was {self._report}") from None
        assert self._report is not None
        return self._report

    async def serving(self, *engines: LocalEngine) -> Report:
        """Wait until it serves with exactly these engines behind it."""
        wanted = {engine.address for engine in engines}
        return await self.until(
            lambda report: report.standing.is_ready and {m.address for m in report.members} == wanted
        )

    async def standing(self, reason: Reason) -> Report:
        return await self.until(lambda report: report.standing.reason is reason)


@asynccontextmanager
async def router(proxy_url: str, **settings: Any) -> AsyncIterator[Router]:
    told: dict[str, Any] = {
        "namespace": "test",
        "deployment": "glm",
        "revision": "a",
        "policy": QUICK,
        "drain_delay_seconds": 0.0,
        # What is short in a cluster is what a busy machine makes a test miss.
        "hold_seconds": SECONDS,
        "switch_seconds": SECONDS,
    }
    running = Router(Settings(proxy=proxy_url, listen=f"{LOOPBACK}:{free_ports()}", **(told | settings)))
    agent = asyncio.create_task(serve(running.settings, running.stop, running.informed))
    await asyncio.sleep(0)
    try:
        yield running
    finally:
        running.stop.set()
        async with asyncio.timeout(SECONDS):
            await agent


def prefill_engine(env: dict[str, str] | None = None, *more: str) -> LocalEngine:
    return LocalEngine(prefill(free_ports(9), *more), env)


def decode_engine(env: dict[str, str] | None = None, *more: str) -> LocalEngine:
    return LocalEngine(decode(free_ports(2), *more), env)


async def chat(http: aiohttp.ClientSession, where: Router, content: str = "hello there", **body: Any) -> str:
    """One answer, whole. Raises `AssertionError` unless it is a 200."""
    asked = {"model": "glm", "messages": [{"role": "user", "content": content}], **body}
    async with http.post(f"{where.url}/v1/chat/completions", json=asked) as response:
        answer = await response.text()
        assert response.status == 200, answer
    return str(json.loads(answer)["choices"][0]["message"]["content"])
