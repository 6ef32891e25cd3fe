"""Operators that run: inside the test's own event loop, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.manifest import API_VERSION, DEPLOYMENTS, KIND, Key, Manifest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "operator" / "src"
CRDS = HERE.parents[1] / "crds"
NUMBERS = itertools.count()
WRITES = re.compile(r'kvpp_api_requests_total\{code="\d+",kind="(\w+)",verb="(APPLY\w*|POST|PUT|PATCH|DELETE)"\} (\d+)')

Question = Callable[[], Awaitable[Any]]


async def eventually(question: Question, *, seconds: float = 20.0) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            if answer := await question():
                return answer
            await asyncio.sleep(0.02)


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., Awaitable[Any]]:
    """Ask again until the answer is true."""
    return eventually


@dataclass
class Probes:
    """What an operator says of itself over HTTP."""

    url: str
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.url + path) as response:
            return response.status, await response.text()

    async def is_ready(self) -> bool:
        return (await self.get("/readyz"))[0] == 200

    async def problems(self) -> list[str]:
        async with self.session.get(self.url + "/readyz") as response:
            problems: list[str] = (await response.json())["problems"]
            return problems

    async def writes(self) -> dict[str, int]:
        """Count the writes so far, by verb and kind."""
        _, text = await self.get("/metrics")
        return {f"{verb} {kind}": int(number) for kind, verb, number in WRITES.findall(text)}

    async def metric(self, line: str) -> float:
        _, text = await self.get("/metrics")
        found = re.search(rf"^{re.escape(line)} ([\d.e+]+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


class Operator:
    """The tiny operator as a process."""

    def __init__(self, process: asyncio.subprocess.Process, probes: Probes, log: Path) -> None:
        self.process = process
        self.probes = probes
        self.log = log

    async def ready(self) -> None:
        await eventually(self.probes.is_ready)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def access(local_cluster: Any) -> Access:
    return Access(lambda: load(str(local_cluster.kubeconfig)))


@pytest.fixture
async def cluster(access: Access) -> AsyncIterator[Cluster]:
    async with Cluster(access) as client:
        for path in sorted(CRDS.glob("*.yaml")):
            await client.apply(yaml.safe_load(path.read_text()))
        await eventually(lambda: client.serves(DEPLOYMENTS))
        yield client


@dataclass
class Stage:
    """A namespace in which one operator may act, and what a test does and asks there."""

    cluster: Cluster
    namespace: str
    start: Callable[..., contextlib.AbstractAsyncContextManager[Operator]]
    user: Key
    settings: Key
    engine: Key

    async def apply(self, name: str = "glm", *, replicas: int = 1) -> Manifest:
        """Apply the smallest KVPPDeployment that a user may write."""
        return await self.cluster.apply(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "model": {
                        "profile": "GLM-5.2",
                        "source": {"persistentVolumeClaim": {"claimName": "w", "path": "m"}},
                    },
                    "engine": {"version": "0.30.0rc2"},
                    "accelerator": {"chip": "950DT"},
                    "unified": {"replicas": replicas, "parallelism": {"tensor": 8, "expert": True}},
                },
            }
        )

    async def live(self, key: Key) -> Manifest:
        live = await self.cluster.get(key)
        assert live is not None, f"{key} is gone"
        return live

    async def observed(self, name: str = "glm", *, generation: int = 1) -> Manifest:
        """Wait until the status speaks of a generation."""

        async def ask() -> Manifest | None:
            live = await self.live(self.user._replace(name=name))
            return live if live.get("status", {}).get("observedGeneration") == generation else None

        found: Manifest = await eventually(ask)
        return found


@pytest.fixture
async def stage(
    cluster: Cluster, start: Callable[..., contextlib.AbstractAsyncContextManager[Operator]], namespace: str
) -> Stage:
    return Stage(
        cluster,
        namespace,
        start,
        user=Key(API_VERSION, KIND, namespace, "glm"),
        settings=Key("v1", "ConfigMap", namespace, "glm-settings"),
        engine=Key("apps/v1", "Deployment", namespace, "glm-u0"),
    )


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    name = f"run-{os.getpid()}-{next(NUMBERS)}"
    created = await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await cluster.delete(Key("v1", "Namespace", "", name), uid=created["metadata"]["uid"])


@pytest.fixture
def start(
    local_cluster: Any, namespace: str, session: aiohttp.ClientSession, tmp_path: Path
) -> Callable[..., contextlib.AbstractAsyncContextManager[Operator]]:
    """Start the tiny operator as a process for this test's namespace; `kubeconfig` makes it somebody else."""

    @contextlib.asynccontextmanager
    async def running(kubeconfig: Path | None = None) -> AsyncIterator[Operator]:
        log = tmp_path / f"operator-{next(NUMBERS)}.log"
        # As in the image, where the official client is not installed: kopf imports it where it finds it.
        program = "import runpy, sys; sys.modules['kubernetes'] = None; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-c", program, str(HERE / "tiny_operator.py"), namespace),
                env={"PYTHONPATH": str(SOURCES), "KUBECONFIG": str(kubeconfig or local_cluster.kubeconfig)},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert process.stdout is not None
            url = (await asyncio.wait_for(process.stdout.readline(), 20.0)).decode().strip()
            assert url, log.read_text()
            yield Operator(process, Probes(url, session), log)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    return running
