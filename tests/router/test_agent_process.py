"""The agent as its pod runs it: a process with its Role's rights, a real API server, slices, the ConfigMap it reports to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kvpp_engine_simulator.local import LOOPBACK, LocalEngine, decode, free_ports, prefill
from kvpp_engine_simulator.settings import own_address
from router_rig import SECONDS, RealProxy
from specs import DISAGGREGATED, deployment, planned

from kvpp_operator import names
from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.manifest import Key, apply_order, key_of
from kvpp_operator.render.router import router, router_plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    import aiohttp

pytestmark = pytest.mark.cluster


@pytest.fixture
async def cluster(local_cluster: Any) -> AsyncIterator[Cluster]:
    async with Cluster(Access(lambda: load(str(local_cluster.kubeconfig)))) as client:
        yield client


@pytest.fixture
def restricted_kubeconfig(local_cluster: Any, namespace: str) -> Iterator[Path]:
    """The administrator's, acting as the router's service account: the server grants what the Role grants."""
    config = yaml.safe_load(local_cluster.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = f"system:serviceaccount:{namespace}:glm-router"
    path = local_cluster.kubeconfig.with_name(f"router-{os.getpid()}.yaml")  # certificates may be named relative to it
    path.write_text(yaml.safe_dump(config))
    yield path
    path.unlink()


async def apply_router(cluster: Cluster, namespace: str, serving: str) -> None:
    body = deployment(DISAGGREGATED, "glm")
    body["metadata"]["namespace"] = namespace
    made = router_plan(planned(body), "example.org/kvpp-router:1")
    assert made is not None
    kept = ("Deployment", "PodDisruptionBudget")
    for manifest in sorted(router(made, serving, ("r1", "r2")), key=apply_order):
        if manifest["kind"] not in kept:
            await cluster.apply(manifest)


def piece(namespace: str, role: str, revision: str, engine: LocalEngine) -> dict[str, Any]:
    labels = {names.DEPLOYMENT: "glm", names.ROLE: role, names.REVISION: revision}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"glm-{role}-{revision}", "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": engine.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [engine.host], "conditions": {"ready": True}}],
    }


@asynccontextmanager
async def agent(
    kubeconfig: Path, namespace: str, proxy: RealProxy, port: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    told = (
        "--deployment",
        "glm",
        "--service",
        "glm-router",
        "--report",
        "glm-router",
        "--listen",
        f"{LOOPBACK}:{port}",
    )
    quick = ("--proxy", proxy.url, "--health-hold", "0", "--drain-delay", "0")
    pod = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": namespace, "POD_NAME": "glm-router-0"}
    env = {**os.environ, **pod, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = await asyncio.create_subprocess_exec(sys.executable, "-m", "kvpp_operator.router", *told, *quick, env=env)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def reported(
    cluster: Cluster, namespace: str, what: Callable[[dict[str, Any] | None], bool]
) -> dict[str, Any] | None:
    """Wait until the pod's key in the ConfigMap is as asked; None: it is gone."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = await cluster.get(Key("v1", "ConfigMap", namespace, "glm-router"))
            text = ((found or {}).get("data") or {}).get("glm-router-0")
            report = json.loads(text) if text else None
            if what(report):
                return report
            await asyncio.sleep(0.1)


async def test_from_slices_to_answers(
    cluster: Cluster, restricted_kubeconfig: Path, namespace: str, proxy: RealProxy, http: aiohttp.ClientSession
) -> None:
    own, port = own_address(), free_ports()  # the API server takes no loopback address for an endpoint
    env = {"VLLM_HOST_IP": own}
    await apply_router(cluster, namespace, "r1")
    async with (
        LocalEngine(prefill(free_ports(9)), env, host=own) as old_p,
        LocalEngine(decode(free_ports(2)), env, host=own) as old_d,
        LocalEngine(prefill(free_ports(9)), env, host=own) as new_p,
        LocalEngine(decode(free_ports(2)), env, host=own) as new_d,
        agent(restricted_kubeconfig, namespace, proxy, port) as running,
    ):
        report = await reported(cluster, namespace, lambda report: bool(report and report["reason"] == "NoMembers"))
        assert report is not None
        for role, revision, engine in (("prefill", "r1", old_p), ("decode", "r1", old_d)):
            await cluster.apply(piece(namespace, role, revision, engine))
        report = await reported(cluster, namespace, lambda report: bool(report and report["ready"]))
        assert report == {
            "ready": True,
            "reason": "Serving",
            "message": "",
            "revision": "r1",
            "members": {"prefill": [old_p.address], "decode": [old_d.address]},
            "handover": "seen",
        }
        body = {"messages": [{"role": "user", "content": "hello"}]}
        async with http.post(f"http://{LOOPBACK}:{port}/v1/chat/completions", json=body) as response:
            assert "handed over from" in (await response.json())["choices"][0]["message"]["content"]

        for role, revision, engine in (("prefill", "r2", new_p), ("decode", "r2", new_d)):
            await cluster.apply(piece(namespace, role, revision, engine))
        await apply_router(cluster, namespace, "r2")
        await reported(
            cluster, namespace, lambda report: bool(report and report["ready"] and report["revision"] == "r2")
        )

        gone = piece(namespace, "decode", "r2", new_d)
        live = await cluster.get(key_of(gone))
        assert live is not None
        await cluster.delete(key_of(gone), uid=live["metadata"]["uid"])
        await reported(cluster, namespace, lambda report: bool(report and report["reason"] == "NoMembers"))

        running.send_signal(signal.SIGTERM)
        assert await running.wait() == 0
        await reported(cluster, namespace, lambda report: report is None)  # the last word: nothing
