"""The operator on the local control plane: time to all objects, calls per reconcile, memory."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import psutil
import specs
from operator_process import Cluster, Operator, eventually

from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.proxy import WriteProxy

DEPLOYMENTS = 20


def main() -> None:
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        for file in sorted((specs.ROOT / "crds").glob("*.yaml")):
            cluster.kubectl("apply", "--server-side", "-f", str(file))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        asyncio.run(measure(Cluster(cluster, "default"), Path(folder)))


async def measure(user: Cluster, folder: Path) -> None:
    async with WriteProxy.of(user.cluster.kubeconfig) as proxy:
        operator = Operator(proxy.write_kubeconfig(folder / "kubeconfig"), folder / "log")
        await asyncio.to_thread(operator.start)
        proxy.forget()
        start = time.perf_counter()
        await asyncio.to_thread(user.apply, specs.deployment(specs.DISAGGREGATED, name="one"))
        applied = time.perf_counter()
        await asyncio.to_thread(eventually, lambda: len(user.owned("one")) >= 6)
        print(
            f"one deployment: kubectl apply {applied - start:.2f} s, then all 6 owned objects after {time.perf_counter() - applied:.2f} s (kubectl's polling included)"
        )
        await asyncio.to_thread(user.wait, "one", "Ready")
        print(
            f"  Ready after {time.perf_counter() - start:.2f} s; calls of its whole first life: {calls(proxy.requests)}"
        )
        await many(user, proxy, operator)
        operator.stop()


async def many(user: Cluster, proxy: WriteProxy, operator: Operator) -> None:
    names = [f"many-{index:02}" for index in range(DEPLOYMENTS)]
    start = time.perf_counter()
    for name in names:
        await asyncio.to_thread(
            user.apply, specs.deployment(specs.DISAGGREGATED, name=name, prefill__replicas=0, decode__replicas=0)
        )
    for name in names:
        await asyncio.to_thread(user.wait, name, "Ready")
    print(
        f"{DEPLOYMENTS} deployments without engines Ready after {time.perf_counter() - start:.2f} s (applied one by one)"
    )
    await asyncio.sleep(1)
    operator.stop()
    proxy.forget()
    await asyncio.to_thread(operator.start)
    await asyncio.sleep(3)
    text = await asyncio.to_thread(metrics, operator.port)
    count = number(text, r"^\S*reconcile\S*_seconds_count(?:\{[^}]*\})? (\S+)$")
    total = number(text, r"^\S*reconcile\S*_seconds_sum(?:\{[^}]*\})? (\S+)$")
    print(f"restart over {DEPLOYMENTS + 1} deployments: {len(proxy.writes)} writes, calls {calls(proxy.requests)}")
    if count:
        print(f"  {count:.0f} reconciles with nothing to do, {1000 * total / count:.2f} ms each")
    assert operator.process is not None
    print(f"  resident memory {psutil.Process(operator.process.pid).memory_info().rss / 2**20:.0f} MiB")


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


def calls(requests: Counter[tuple[str, str]]) -> str:
    return ", ".join(
        f"{verb} {resource} {count}" for (verb, resource), count in sorted(requests.items()) if verb != "watch"
    )


def number(text: str, pattern: str) -> float:
    return sum(float(found) for found in re.findall(pattern, text, re.MULTILINE))
