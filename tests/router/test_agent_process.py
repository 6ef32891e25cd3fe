"""The agent as its pod runs it: a process, a real API server, EndpointSlices, the ConfigMap it reports to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from kvpp_engine_simulator.local import LOOPBACK, LocalEngine, free_ports
from router_rig import SECONDS, RealProxy, decode_engine, prefill_engine

from kvpp_operator import names
from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.manifest import Key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.cluster
NAMESPACE = f"router-{os.getpid()}"


@pytest.fixture
async def cluster(local_cluster: Any) -> AsyncIterator[Cluster]:
    async with Cluster(Access(lambda: load(str(local_cluster.kubeconfig)))) as client:
        made = await client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        yield client
        await client.delete(Key("v1", "Namespace", "", NAMESPACE), uid=made["metadata"]["uid"])


def service(revision: str) -> dict[str, Any]:
    meta = {"name": "glm-router", "namespace": NAMESPACE, "labels": {names.REVISION: revision}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 8000}]}}


def piece(role: str, revision: str, engine: LocalEngine, *, ready: bool = True) -> dict[str, Any]:
    labels = {names.DEPLOYMENT: "glm", names.ROLE: role, names.REVISION: revision}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"glm-{role}-{engine.port}", "namespace": NAMESPACE, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": engine.port, "protocol": "TCP"}],
        # 127.0.0.1 is no address that the API server takes for an endpoint; the whole of 127/8 is this machine.
        "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": ready}}],
    }


ADDRESS = ""


@asynccontextmanager
async def agent(local_cluster: Any, proxy: RealProxy, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    told = ("--deployment", "glm", "--service", "glm-router", "--report", "glm-router", "--listen", f"{LOOPBACK}:{port}")
    quick = ("--proxy", proxy.url, "--health-hold", "0", "--drain-delay", "0")
    env = {**os.environ, "KUBECONFIG": str(local_cluster.kubeconfig), "POD_NAMESPACE": NAMESPACE, "POD_NAME": "glm-router-0"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    running = await asyncio.create_subprocess_exec(sys.executable, "-m", "kvpp_operator.router", *told, *quick, env=env)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()
