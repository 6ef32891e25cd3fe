"""Pools on a real API server: what restarts a MetaService and what does not, existing pools, rights, traces."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import specs
import yaml
from click.testing import CliRunner
from operator_process import Cluster, Operator, eventually

from kvpp_operator import names
from kvpp_operator.cli.app import app

pytestmark = pytest.mark.cluster

LATEST = {"engine": {"version": "latest"}}
ELECTED = {"backend": "Memcache", "memcache": {"metaService": {"replicas": 2}, "memoryPerDevice": "1Gi"}}
SPLIT = specs.DISAGGREGATED | LATEST | {"prefill": {"parallelism": {"tensor": 2, "expert": True}}, "pooling": ELECTED}
THRESHOLD = {"ock.mmc.evict_threshold_high": "85"}


def uids(user: Cluster, label: str = names.POOL) -> dict[str, str]:
    """Pods that carry a label and are not on their way out."""
    pods = user.items("pods")
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if label in pod["metadata"]["labels"] and not pod["metadata"].get("deletionTimestamp")
    }


def generations(user: Cluster) -> dict[str, int]:
    found = user.get("statefulsets,deployments", "--selector", names.POOL)["items"]
    return {one["metadata"]["name"]: one["metadata"]["generation"] for one in found}


def costs(user: Cluster) -> list[str]:
    findings = user.deployment("demo").get("status", {}).get("findings", [])
    return [finding["message"] for finding in findings if finding["rule"] == "POOL050"]


def live_findings(user: Cluster, body: dict[str, Any]) -> list[dict[str, Any]]:
    """What `kvpp validate --live` says of the cost, before anything is applied."""
    document = yaml.safe_dump({**body, "metadata": {"name": "demo", "namespace": user.namespace}})
    environment = {"KUBECONFIG": str(user.cluster.kubeconfig)}
    result = CliRunner().invoke(app, ["validate", "--live", "-o", "json", "-"], input=document, env=environment)
    assert result.exit_code == 0, result.output
    findings = json.loads(result.stdout)["documents"][0]["findings"]
    return [finding for finding in findings if finding["rule"] == "POOL050"]


@pytest.mark.usefixtures("operator")
def test_scaling_leaves_the_meta_service_and_a_threshold_replaces_it_once(user: Cluster) -> None:
    user.apply(specs.deployment(SPLIT))
    user.wait("demo", "Ready")
    before, engines = uids(user), uids(user, names.ENGINE)
    assert len(before) == 2
    user.apply(specs.deployment(SPLIT, prefill__replicas=8))
    user.wait("demo", "Ready")
    assert uids(user) == before
    assert len(uids(user, names.ENGINE)) == 9

    edited = specs.deployment(SPLIT, prefill__replicas=8, pooling__memcache__metaConfig=THRESHOLD)
    scaled = uids(user, names.ENGINE)
    [told_before] = live_findings(user, edited)
    user.apply(edited)
    told = eventually(lambda: costs(user), what="the cost in status.findings")
    assert "metaConfig ock.mmc.evict_threshold_high default → 85" in told[0]
    assert told == [told_before["message"]]
    eventually(lambda: len(uids(user)) == 2 and not set(uids(user).values()) & set(before.values()))
    eventually(lambda: not costs(user), what="the cost is not said any more once all is up")
    user.wait("demo", "Ready")
    assert uids(user, names.ENGINE) == scaled
    assert set(engines) <= set(scaled)
    assert list(generations(user).values()) == [2]
    replaced = uids(user)
    time.sleep(1)
    assert uids(user) == replaced


@pytest.mark.usefixtures("operator")
def test_a_service_that_ends_later_is_told_although_engines_serve(user: Cluster) -> None:
    """Engines need it to start, not to serve: without the condition its end would show only as slow answers."""
    user.apply(specs.deployment(SPLIT))
    user.wait("demo", "Ready")
    user.wait("demo", "PoolReady")
    fault = "devcluster.kvpp.io/never-ready"
    first, second = sorted(uids(user))
    user.kubectl("annotate", "pod", first, f"{fault}=true")
    eventually(lambda: user.condition("demo", "PoolReady").get("reason") == "PoolDegraded", what="PoolDegraded")
    user.kubectl("annotate", "pod", second, f"{fault}=true")
    told = user.wait("demo", "PoolReady", "False")
    assert told["message"].startswith(f"0 of 2 pods of {first.rpartition('-')[0]} are ready.")
    assert user.condition("demo", "Ready")["status"] == "True"
    user.kubectl("annotate", "pod", first, second, f"{fault}-")
    eventually(lambda: user.condition("demo", "PoolReady").get("reason") == "PoolReady", what="PoolReady")


@pytest.mark.usefixtures("operator")
def test_another_layout_gets_a_pool_of_its_own_and_the_old_one_goes(user: Cluster) -> None:
    user.apply(specs.deployment(SPLIT))
    user.wait("demo", "Ready")
    before = set(generations(user))
    user.apply(specs.deployment(SPLIT, prefill__parallelism__tensor=4))
    told = eventually(lambda: costs(user), what="the cost in status.findings")
    assert "tensor parallelism 2 → 4" in told[0]
    user.wait("demo", "Ready")
    eventually(lambda: len(generations(user)) == 1 and not before & set(generations(user)))
    eventually(lambda: not costs(user))


THEIRS = """
apiVersion: v1
kind: Service
metadata: {name: theirs}
spec: {ports: [{name: rpc, port: 5000}, {name: store, port: 6001}], selector: {app: theirs}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: theirs}
spec:
  selector: {matchLabels: {app: theirs}}
  template: {metadata: {labels: {app: theirs}}, spec: {containers: [{name: a, image: b}]}}
"""


@pytest.mark.parametrize(
    "external", [{"address": "theirs:5000"}, {"address": "theirs:5000", "configStoreAddress": "theirs:6001"}]
)
@pytest.mark.usefixtures("operator")
def test_an_existing_pool_is_neither_owned_nor_deleted(user: Cluster, external: dict[str, str]) -> None:
    user.kubectl("apply", "-f", "-", input=THEIRS)
    # The status of their Deployment is its controller's business.
    before = [(one["metadata"]["uid"], one["spec"], one["metadata"].get("labels")) for one in theirs(user)]
    pooling = {"backend": "Memcache", "memcache": {"metaService": {"external": external}, "memoryPerDevice": "1Gi"}}
    user.apply(specs.deployment(specs.UNIFIED, pooling=pooling))
    user.wait("demo", "Ready")
    owned = {(one["kind"], one["metadata"]["labels"].get("app.kubernetes.io/component")) for one in user.owned("demo")}
    assert {kind for kind, component in owned if component in ("meta-service", "pool")} == {
        "ConfigMap",
        "ControllerRevision",
    }
    [wait] = user.items("deployments")[0]["spec"]["template"]["spec"]["initContainers"]
    assert wait["command"][2:] == ["theirs:5000", external.get("configStoreAddress", "theirs:6000")]
    user.kubectl("delete", "kvpp", "demo")
    eventually(lambda: not user.owned("demo"))
    assert [(one["metadata"]["uid"], one["spec"], one["metadata"].get("labels")) for one in theirs(user)] == before


def theirs(user: Cluster) -> list[dict[str, Any]]:
    return [user.get("service", "theirs"), user.get("deployment", "theirs")]


@pytest.mark.usefixtures("operator")
def test_decode_that_asks_to_join_is_told_why_not(user: Cluster, kvpp_validate: Any) -> None:
    asking = specs.deployment(SPLIT, decode__env=[{"name": "MMC_LOCAL_CONFIG_PATH", "value": "/etc/mmc-local.conf"}])
    user.apply(asking)
    refused = user.wait("demo", "Accepted", "False")
    assert "Decode takes no part in the pool: its caches have another layout" in refused["message"]
    assert "spec.decode.env[0]" in refused["message"]
    assert "POOL027" in {finding["rule"] for finding in kvpp_validate(asking)}
    assert user.items("pods") == []


def test_a_restart_writes_nothing_and_a_leaders_life_is_no_news(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(SPLIT))
    user.wait("demo", "Ready")

    def versions() -> dict[tuple[str, str], str]:
        found = [*user.owned("demo"), user.deployment("demo")]
        return {(one["kind"], one["metadata"]["name"]): one["metadata"]["resourceVersion"] for one in found}

    def settled() -> dict[tuple[str, str], str] | None:
        first = versions()
        time.sleep(0.5)
        return first if first == versions() else None

    before = eventually(settled)
    assert operator.stop() == 0
    operator.start()
    time.sleep(1)
    assert versions() == before
    [lease] = user.get("leases", "--selector", names.POOL)["items"]
    for second in range(3):
        renewed = {"spec": {"holderIdentity": "pod-0", "renewTime": f"2026-01-01T00:00:0{second}.000000Z"}}
        user.kubectl("patch", "lease", lease["metadata"]["name"], "--type=merge", "-p", yaml.safe_dump(renewed))
    time.sleep(1)
    key = ("Lease", lease["metadata"]["name"])
    after = versions()
    assert {**after, key: before[key]} == before


@pytest.mark.usefixtures("operator")
def test_deleting_leaves_nothing(user: Cluster) -> None:
    on_host = {"metaService": {"podTemplate": {"spec": {"hostNetwork": True}}}, "memoryPerDevice": "1Gi"}
    user.apply(specs.deployment(specs.UNIFIED, pooling=ELECTED))
    user.apply(specs.deployment(specs.UNIFIED, name="host", pooling={"backend": "Memcache", "memcache": on_host}))
    for name in ("demo", "host"):
        user.wait(name, "Ready")
    [claim] = user.claims()
    assert (claim["role"], claim["last"] - claim["first"]) == ("meta-service", 2)
    [pod] = [pod for pod in user.items("pods") if pod["spec"].get("hostNetwork")]
    assert {port["hostPort"] for port in pod["spec"]["containers"][0]["ports"]} == set(
        range(claim["first"], claim["last"] + 1)
    )
    assert {"Lease", "StatefulSet", "Role", "RoleBinding", "NetworkPolicy"} <= {
        one["kind"] for one in user.owned("demo")
    }
    user.kubectl("delete", "kvpp", "demo", "host")
    eventually(lambda: not user.owned("demo") and not user.owned("host") and not user.items("pods"))
    eventually(lambda: not user.claims(), what="the claim is freed")
