"""Two real MetaServices elect a leader through a real API server, with the rights that we render and no others."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from specs import UNIFIED

from kvpp_devcluster.cluster import LocalCluster
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import plan_pool
from kvpp_operator.render.pool import pool_objects

pytestmark = pytest.mark.cluster

ADDRESSES = ("127.0.0.2", "127.0.0.3")
"""As pods have: one address each, and the same ports."""


@pytest.fixture
def ports(free_ports: Callable[..., list[int]]) -> dict[str, int]:
    return dict(zip(("rpc", "store", "http"), free_ports(3, ADDRESSES[0]), strict=True))


class Pool:
    """The rendered objects of a pool in a cluster, and what became of them there."""

    def __init__(self, cluster: LocalCluster, namespace: str, made: list[Manifest]) -> None:
        self.cluster, self.namespace, self.made = cluster, namespace, made
        self.name: str = made[0]["metadata"]["name"]
        documents = [{**one, "metadata": {**one["metadata"], "namespace": namespace}} for one in made]
        for document in documents:
            for subject in document.get("subjects", []):
                subject["namespace"] = namespace
        cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def get(self, kind: str, name: str) -> Manifest:
        found: Manifest = json.loads(self.cluster.kubectl("get", kind, name, "-n", self.namespace, "-o", "json"))
        return found

    @property
    def pods(self) -> list[str]:
        listed = self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return sorted(pod["metadata"]["name"] for pod in listed)

    @property
    def holder(self) -> str | None:
        held: str | None = self.get("lease", self.name)["spec"].get("holderIdentity")
        return held

    def part(self, pod: str) -> str | None:
        said: str | None = self.get("pod", pod)["metadata"]["labels"].get("role")
        return said

    def kubeconfig(self, path: Path) -> Path:
        """The pods' own account."""
        token = self.cluster.kubectl("create", "token", self.name, "-n", self.namespace).strip()
        admin = yaml.safe_load(self.cluster.kubeconfig.read_text())
        admin["users"] = [{"name": admin["users"][0]["name"], "user": {"token": token}}]
        path.write_text(json.dumps(admin))
        return path


@pytest.fixture
def pool(
    plan_of: Callable[..., Plan],
    pooled: Callable[..., Any],
    ports: dict[str, int],
    local_cluster: LocalCluster,
    namespace: str,
) -> Pool:
    plan = plan_of(pooled(UNIFIED, {"backend": "Memcache", "memcache": {"metaService": {"replicas": 2}}}))
    planned = Plan(plan.resolved, plan.roles, plan.engines, plan_pool(plan.resolved, "", ports))
    return Pool(local_cluster, namespace, pool_objects(planned))


@pytest.fixture
def start(pool: Pool, meta_service: Any, room: Path, eventually: Any) -> Callable[[int], Any]:
    """Run what the pod of that number would run."""
    eventually(lambda: pool.pods == [f"{pool.name}-0", f"{pool.name}-1"])
    environment = {
        "KUBECONFIG": str(pool.kubeconfig(room / "kubeconfig")),
        "META_NAMESPACE": pool.namespace,
        "META_LEASE_NAME": pool.name,
    }
    config = next(one for one in pool.made if one["kind"] == "ConfigMap")

    def start(number: int) -> Any:
        return meta_service(config, ADDRESSES[number], META_POD_NAME=f"{pool.name}-{number}", **environment)

    return start


def test_a_leader_and_its_successor(
    pool: Pool, start: Callable[[int], Any], ports: dict[str, int], eventually: Any, health: Any
) -> None:
    first = start(0)
    eventually(lambda: pool.holder == f"{pool.name}-0", what=first.said)
    second = start(1)

    def states() -> list[Any]:
        return [health(address, ports["http"])["ha_state"] for address in ADDRESSES]

    eventually(lambda: states() == ["serving", "standby"], what=second.said)
    eventually(lambda: [pool.part(pod) for pod in pool.pods] == ["master", "backup"])
    endpoints = f"/apis/discovery.k8s.io/v1/namespaces/{pool.namespace}/endpointslices"

    def served() -> set[str]:
        slices = pool.cluster.get(endpoints)["items"]
        return {endpoint["targetRef"]["name"] for one in slices for endpoint in one.get("endpoints") or ()}

    eventually(lambda: served() == {f"{pool.name}-0"})

    first.stop(signal.SIGKILL)
    eventually(lambda: pool.holder == f"{pool.name}-1", what=second.said)
    eventually(lambda: health(ADDRESSES[1], ports["http"])["ha_state"] == "serving")
    eventually(lambda: pool.part(f"{pool.name}-1") == "master")

    again = start(0)  # the pod's container comes back, its old label still on it
    eventually(lambda: health(ADDRESSES[0], ports["http"])["ha_state"] == "standby", what=again.said)
    eventually(lambda: pool.part(f"{pool.name}-0") == "backup")
    assert second.stop() == 0
    eventually(lambda: pool.holder == f"{pool.name}-0", what=again.said)
    assert again.stop() == 0


def test_their_account_can_do_nothing_else(pool: Pool) -> None:
    def may(verb: str, what: str) -> bool:
        account = f"system:serviceaccount:{pool.namespace}:{pool.name}"
        try:
            answer = pool.cluster.kubectl("auth", "can-i", verb, what, "-n", pool.namespace, "--as", account)
        except Exception as refused:  # noqa: BLE001 - kubectl ends with 1 when the answer is no
            answer = str(refused)
        return answer.strip() == "yes"

    assert may("update", f"leases/{pool.name}")
    assert may("patch", f"pods/{pool.name}-1")
    refused = ["pods/demo-u0", f"pods/{pool.name}-2", "leases/other", "secrets/any", "pods"]
    assert [what for what in refused if may("patch", what)] == []


def test_applying_again_takes_nothing_from_the_leader(pool: Pool, start: Callable[[int], Any], eventually: Any) -> None:
    service = start(0)
    eventually(lambda: pool.part(f"{pool.name}-0") == "master", what=service.said)
    Pool(pool.cluster, pool.namespace, pool.made)
    assert pool.holder == f"{pool.name}-0"
    assert pool.part(f"{pool.name}-0") == "master"


def test_a_pod_of_the_service_is_admitted_where_pods_are_restricted(pool: Pool, eventually: Any) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    name = f"{pool.namespace}-r"
    pool.cluster.control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    template = next(one for one in pool.made if one["kind"] == "StatefulSet")["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default", "automountServiceAccountToken": False}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "labels": template["metadata"]["labels"]},
        "spec": spec,
    }
    try:
        eventually(lambda: pool.cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts")["items"])
        made = pool.cluster.control_plane.request("POST", f"/api/v1/namespaces/{name}/pods?dryRun=All", pod)
        assert made["metadata"]["name"] == "one"
    finally:
        pool.cluster.control_plane.request("DELETE", f"/api/v1/namespaces/{name}")
