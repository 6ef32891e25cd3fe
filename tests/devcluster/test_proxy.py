from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from kvpp_devcluster.proxy import Drop, Moment, Write, WriteProxy, classify, is_write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kvpp_devcluster.cluster import LocalCluster

NS = "/api/v1/namespaces/ns"


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", f"{NS}/pods", "", ("list", "pods")),
        ("GET", f"{NS}/pods", "watch=1", ("watch", "pods")),
        ("GET", f"{NS}/pods", "watch=true&x=1", ("watch", "pods")),
        ("GET", f"{NS}/pods/p", "", ("get", "pods")),
        ("GET", f"{NS}/pods/p/log", "", ("get", "pods/log")),
        ("POST", f"{NS}/pods", "", ("create", "pods")),
        ("DELETE", f"{NS}/pods", "", ("deletecollection", "pods")),
        ("DELETE", f"{NS}/pods/p", "", ("delete", "pods")),
        ("PATCH", "/apis/apps/v1/namespaces/ns/deployments/d/status", "", ("patch", "deployments/status")),
        ("PUT", "/apis/apps/v1/namespaces/ns/deployments/d", "", ("update", "deployments")),
        ("GET", "/apis/apps/v1/deployments", "", ("list", "deployments")),
        ("GET", "/api/v1/namespaces", "", ("list", "namespaces")),
        ("DELETE", NS, "", ("delete", "namespaces")),
        ("PUT", f"{NS}/finalize", "", ("update", "namespaces/finalize")),
        ("GET", "/apis/apps/v1", "", ("get", "/apis/apps/v1")),
        ("GET", "/readyz", "", ("get", "/readyz")),
    ],
)
def test_requests_have_the_names_of_rbac(method: str, path: str, query: str, expected: tuple[str, str]) -> None:
    assert expected == classify(method, path, query)


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("PATCH", f"{NS}/pods/p", "", True),
        ("PATCH", f"{NS}/pods/p", "dryRun=All", False),
        ("GET", f"{NS}/pods/p", "", False),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", False),
    ],
)
def test_writes_are_what_can_change_the_cluster(method: str, path: str, query: str, *, expected: bool) -> None:
    assert expected == is_write(method, path, query)


@pytest.fixture
async def proxy(local_cluster: LocalCluster) -> AsyncIterator[WriteProxy]:
    plane = local_cluster.control_plane
    async with WriteProxy(
        plane.server, ca=plane.ca, client_cert=plane.admin.certificate, client_key=plane.admin.key
    ) as proxy:
        yield proxy


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def stored(cluster: LocalCluster, namespace: str) -> set[str]:
    """Names of the test's ConfigMaps; `kube-root-ca.crt` is kube-controller-manager's."""
    items = cluster.get(f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    return {item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"}


@pytest.mark.cluster
async def test_requests_are_passed_on_and_counted(proxy: WriteProxy, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with aiohttp.ClientSession(proxy.url) as client:
        async with client.post(path, json=config_map("a")) as answer:
            assert (answer.status, (await answer.json())["metadata"]["name"]) == (201, "a")
        async with client.post(path, json=config_map("a")) as answer:
            assert answer.status == 409
        async with client.get(f"{path}?labelSelector=x%3Dy%2Cz") as answer:
            assert (await answer.json())["items"] == []
        async with client.patch(
            f"{path}/b?fieldManager=test",
            json=config_map("b"),
            headers={"Content-Type": "application/apply-patch+yaml"},
        ) as answer:
            assert answer.status == 201
    assert [(w.number, w.verb, w.path, w.status) for w in proxy.writes] == [
        (1, "POST", path, 201),
        (2, "POST", path, 409),
        (3, "PATCH", f"{path}/b", 201),
    ]
    assert json.loads(proxy.writes[0].body)["metadata"] == {"name": "a"}
    assert proxy.requests == {("create", "configmaps"): 2, ("list", "configmaps"): 1, ("patch", "configmaps"): 1}


@pytest.mark.cluster
async def test_watches_stream_through(proxy: WriteProxy, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with aiohttp.ClientSession(proxy.url) as client, client.get(f"{path}?watch=1") as watch:
        async with client.post(path, json=config_map("later", text="x" * 200_000)):
            pass
        seen = b""
        async with asyncio.timeout(10):
            while b'"name":"later"' not in seen or not seen.endswith(b"\n"):
                seen += await watch.content.readany()
    assert [json.loads(line)["object"]["metadata"]["name"] for line in seen.splitlines()][-1] == "later"


@pytest.mark.cluster
async def test_large_bodies_and_repeated_warnings_pass(proxy: WriteProxy, namespace: str) -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "colour": "red"}], "flavour": "sour"},
    }
    async with aiohttp.ClientSession(proxy.url) as client:
        async with client.post(f"/api/v1/namespaces/{namespace}/pods?fieldValidation=Warn", json=body) as answer:
            assert len(answer.headers.getall("Warning")) == 2
        large = config_map("large", text="x" * 1_000_000)
        async with client.post(f"/api/v1/namespaces/{namespace}/configmaps", json=large) as answer:
            assert answer.status == 201


@pytest.mark.cluster
async def test_a_service_account_token_is_held_to_its_rights(local_cluster: LocalCluster, namespace: str) -> None:
    kubeconfig = local_cluster.control_plane.kubeconfig_for_service_account(namespace, "default")
    async with (
        WriteProxy.of(kubeconfig) as proxy,
        aiohttp.ClientSession(proxy.url) as client,
        client.get(f"/api/v1/namespaces/{namespace}/pods") as answer,
    ):
        assert answer.status == 403
        assert f"system:serviceaccount:{namespace}:default" in (await answer.json())["message"]


# Writes ConfigMaps m1 to m5, one after the other, and prints how many were answered.
CLIENT = """
import json, sys, urllib.request
for number in range(1, 6):
    body = json.dumps({"metadata": {"name": f"m{number}"}}).encode()
    request = urllib.request.Request(sys.argv[1], data=body, headers={"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).read()
    print(number, flush=True)
"""


async def run_client(proxy: WriteProxy, namespace: str, at: int, moment: Moment, *, drop: bool) -> tuple[int, str]:
    """Run CLIENT, kill it at its write number `at`; return its exit status and what it had seen answered."""
    url = f"{proxy.url}/api/v1/namespaces/{namespace}/configmaps"
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, url, stdout=asyncio.subprocess.PIPE)

    def kill(write: Write, now: Moment) -> None:
        if (write.number, now) == (at, moment):
            os.kill(client.pid, signal.SIGKILL)
            if drop:
                raise Drop

    proxy.on_write = kill
    output, _ = await client.communicate()
    assert client.returncode is not None
    return client.returncode, output.decode().replace("\n", "")


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("at", "moment", "drop", "expected"),
    [
        (1, Moment.RECEIVED, True, set()),
        (1, Moment.RECEIVED, False, {"m1"}),
        (1, Moment.ANSWERED, False, {"m1"}),
        (3, Moment.RECEIVED, True, {"m1", "m2"}),
        (3, Moment.ANSWERED, False, {"m1", "m2", "m3"}),
    ],
)
async def test_a_client_dies_at_its_kth_write(
    local_cluster: LocalCluster,
    proxy: WriteProxy,
    namespace: str,
    at: int,
    moment: Moment,
    *,
    drop: bool,
    expected: set[str],
) -> None:
    status, answered = await run_client(proxy, namespace, at, moment, drop=drop)
    assert (status, answered) == (-signal.SIGKILL, "12345"[: at - 1])
    await proxy.settled()
    assert expected == stored(local_cluster, namespace)
    assert at == len(proxy.writes)


@pytest.mark.cluster
async def test_kubectl_works_through_the_proxy(
    local_cluster: LocalCluster, proxy: WriteProxy, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
    arguments = ["--kubeconfig", str(kubeconfig), "--namespace", namespace, "apply", "--server-side", "--filename=-"]
    manifest = json.dumps(config_map("by-kubectl"))
    output = await asyncio.to_thread(local_cluster.kubectl, *arguments, input=manifest)
    assert output == "configmap/by-kubectl serverside-applied\n"
    assert [(write.verb, write.resource, write.status) for write in proxy.writes] == [("PATCH", "configmaps", 201)]
