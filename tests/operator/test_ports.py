"""The port ledger on a real API server, with the operator as a process: claimed, kept, healed, freed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chart
import pytest
import specs
from operator_process import Cluster, Operator, eventually, ledger_claims

from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.processes import ProgramError
from kvpp_devcluster.proxy import WriteProxy
from kvpp_operator import names
from kvpp_operator.ledger.claim import Claim, Ledger
from kvpp_operator.ledger.live import live_claims
from kvpp_operator.ledger.wire import parse

pytestmark = pytest.mark.cluster

HOST: dict[str, Any] = {"networking": {"hostNetwork": True, "interface": "eth0"}}
SMALL: dict[str, Any] = {
    **specs.DISAGGREGATED,
    "prefill": {"parallelism": {"tensor": 2, "expert": True}},
    "decode": {"parallelism": {"tensor": 1, "expert": True}},
    "router": {"type": "None"},  # it has no port of a host
}
Entries = list[dict[str, Any]]


def small(name: str = "demo", **changes: Any) -> dict[str, Any]:
    return specs.deployment(SMALL, name=name, **{**HOST, **changes})


def held(user: Cluster, name: str = "demo") -> dict[tuple[str, int, str, str], tuple[int, int]]:
    """Blocks of a deployment by (role, engine, purpose, revision)."""
    mine = (claim for claim in user.claims() if claim["name"] == name)
    return {(c["role"], c["engine"], c["purpose"], c["revision"]): (c["first"], c["last"]) for c in mine}


def stored(cluster: LocalCluster) -> Ledger:
    return parse({"claims": ledger_claims(cluster)}).ledger


def shown(user: Cluster) -> tuple[Claim, ...]:
    """What the workloads of the namespace say of their ports."""
    return live_claims({**item, "apiVersion": "apps/v1", "kind": "Deployment"} for item in user.items("deployments"))


def pods(user: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in user.items("pods")}


def replace_claims(user: Cluster, claims: Entries) -> None:
    patch = [{"op": "replace", "path": "/spec/claims", "value": claims}]
    user.kubectl("patch", "kvppportledger", "default", "--type=json", "-p", json.dumps(patch))


def wipe(user: Cluster, _: Entries) -> None:
    user.kubectl("delete", "kvppportledger", "default")


def truncate(user: Cluster, claims: Entries) -> None:
    replace_claims(user, claims[:1])


def lose_one(user: Cluster, claims: Entries) -> None:
    replace_claims(user, claims[:-1])


def overlap(user: Cluster, claims: Entries) -> None:
    """Another deployment's claim on ports of an engine that runs; it begins elsewhere, so the API server lets it pass."""
    stolen = {**claims[-1], "first": claims[-1]["first"] + 1, "name": "nobody", "uid": "u-0"}
    replace_claims(user, [*claims, stolen])


def give_away(user: Cluster, claims: Entries) -> None:
    replace_claims(user, [{**claim, "name": "nobody", "uid": "u-0"} for claim in claims])


def move(user: Cluster, claims: Entries) -> None:
    moved = {**claims[-1], "first": claims[-1]["first"] + 100, "last": claims[-1]["last"] + 100}
    replace_claims(user, [*claims[:-1], moved])


EDITS: tuple[Callable[[Cluster, Entries], None], ...] = (wipe, truncate, lose_one, overlap, give_away, move)


def test_a_ledger_edited_by_hand_heals_and_nothing_moves(user: Cluster, operator: Operator) -> None:
    for name in ("one", "two"):
        user.apply(small(name))
    for name in ("one", "two"):
        user.wait(name, "Ready")
    before, running = user.claims(), pods(user)
    assert len(before) == 8
    assert Ledger(shown(user)) == parse({"claims": before}).ledger
    for edit in EDITS:
        edit(user, before)
        eventually(lambda: user.claims() == before, what=f"{edit.__name__} healed: {user.claims()}")
        assert stored(user.cluster).is_sound(), edit.__name__
        assert pods(user) == running, edit.__name__
    for name in ("one", "two"):
        user.wait(name, "Ready")


def test_a_ledger_lost_while_the_operator_is_down_is_rebuilt_before_anything_new_is_given(
    user: Cluster, operator: Operator
) -> None:
    user.apply(small("old"))
    user.wait("old", "Ready")
    before, running = held(user, "old"), pods(user)
    operator.stop()
    wipe(user, [])
    user.apply(small("new"))
    operator.start()
    user.wait("new", "PortsAllocated")
    assert held(user, "old") == before
    assert stored(user.cluster).is_sound()
    assert running.items() <= pods(user).items()


def test_claims_go_when_the_deployment_moves_to_the_pod_network(user: Cluster, operator: Operator) -> None:
    user.apply(small())
    user.wait("demo", "Ready")
    assert len(held(user)) == 4
    user.apply(small(networking={}))
    user.wait("demo", "Ready")
    assert user.condition("demo", "PortsAllocated")["reason"] == "PodNetwork"
    eventually(lambda: not held(user), what="claims freed once the pods are gone")


def test_a_deployment_deleted_while_the_operator_is_down_is_swept_at_its_start(
    user: Cluster, operator: Operator
) -> None:
    user.apply(small())
    user.wait("demo", "Ready")
    operator.stop()
    user.kubectl("delete", "kvpp", "demo")
    eventually(lambda: not pods(user))
    assert len(held(user)) == 4
    operator.start()
    eventually(lambda: not held(user))


def test_claims_stay_while_a_pod_of_a_deleted_deployment_is_left(user: Cluster, operator: Operator) -> None:
    user.apply(small())
    user.wait("demo", "Ready")
    [pod] = [
        pod["metadata"]["name"] for pod in user.items("pods") if pod["metadata"]["labels"][names.ROLE] == "prefill"
    ]
    before = held(user)
    user.kubectl("patch", "pod", pod, "--type=merge", "-p", '{"metadata":{"finalizers":["test.example/held"]}}')
    user.kubectl("delete", "kvpp", "demo")
    eventually(lambda: list(pods(user)) == [pod] and len(held(user)) == 2, what="decode's claims freed")
    assert held(user).items() <= before.items()
    assert {role for role, *_ in held(user)} == {"prefill"}
    # One of the same name comes while the old pod still has its ports.
    user.apply(small())
    user.wait("demo", "PortsAllocated")
    assert stored(user.cluster).is_sound()
    assert len(user.claims()) == 6
    user.kubectl("patch", "pod", pod, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    eventually(lambda: len(user.claims()) == 4)
    user.wait("demo", "Ready")


def test_a_pinned_role_is_rolled_out_on_the_same_ports(user: Cluster, operator: Operator) -> None:
    user.apply(small(prefill__kvPort=23000))
    user.wait("demo", "Ready")
    old = user.deployment("demo")["status"]["revision"]
    user.apply(small(prefill__kvPort=23000, model__maxModelLen=4096))
    user.wait("demo", "Ready")
    status = user.deployment("demo")["status"]
    assert status["revision"] != old
    assert [(e["kvPort"], e["kvPortLast"], e["revision"]) for e in status["engines"] if e["role"] == "prefill"] == [
        (23000, 23002, status["revision"])
    ]
    eventually(lambda: {revision for *_, revision in held(user)} == {status["revision"]}, what="old claims freed")


def test_a_full_window_says_who_has_it_and_heals_when_ports_return(user: Cluster, operator: Operator) -> None:
    window = {"networking": {**HOST["networking"], "kvPorts": {"first": 29000, "last": 29007}}}
    user.apply(small("first", **window))
    user.wait("first", "Ready")
    user.apply(small("second", **window))
    refused = user.wait("second", "PortsAllocated", "False")
    assert refused["reason"] == "PortsUnavailable"
    assert refused["message"] == (
        "kv ports of prefill and decode: 5 needed (2 blocks, the longest 3), but 29000-29007 has 3 free, "
        f"the longest run 3; {user.namespace}/first holds most of it: 5 ports"
    )
    assert user.condition("second", "Accepted")["status"] == "True"
    assert held(user, "second") == {}
    user.kubectl("delete", "kvpp", "first")
    user.wait("second", "Ready")


def test_a_pin_on_anothers_ports_is_refused_and_names_the_owner(user: Cluster, operator: Operator) -> None:
    user.apply(small("first", prefill__kvPort=24000))
    user.wait("first", "Ready")
    running = pods(user)
    user.apply(small("second", decode__kvPort=24002))
    refused = user.wait("second", "PortsAllocated", "False")
    assert refused["message"] == (
        f"decode engine 0 needs 24002-24003 (2 ports, pin 24002), but prefill engine 0 of {user.namespace}/first holds 24000-24002"
    )
    user.apply(small("second", decode__kvPort=24003))
    user.wait("second", "Ready")
    assert running.items() <= pods(user).items()


def test_an_operator_of_one_namespace_heals_the_ledger_of_all(user: Cluster, tmp_path: Path) -> None:
    """With the rights that the chart gives in that mode. Others' claims are kept, running or not, and left to others."""
    values = [f"config.watchNamespaces={{{user.namespace}}}", "rbac.hostNetwork=true"]
    kubeconfig = chart.operator_kubeconfig(user.cluster, release=user.namespace, values=values)
    operator = Operator(kubeconfig, tmp_path / "operator.log", (user.namespace,))
    operator.start()
    try:
        user.apply(small())
        user.wait("demo", "Ready")
        before, running = user.claims(), pods(user)
        foreign = {**before[0], "namespace": "elsewhere", "uid": "u-9", "first": 29990, "last": 29999}
        replace_claims(user, [*before[:2], foreign])
        eventually(lambda: user.claims() == before)
        assert foreign in ledger_claims(user.cluster)
        wipe(user, before)
        eventually(lambda: user.claims() == before)
        assert pods(user) == running
    finally:
        operator.stop()
        user.cluster.kubectl(
            "delete", "clusterrole,clusterrolebinding", "-l", f"app.kubernetes.io/instance={user.namespace}"
        )


def test_kubectl_kvpp_ports_reads_the_clusters_ledger(
    user: Cluster, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    monkeypatch.setenv("PYTHONPATH", str(specs.ROOT / "operator" / "src"))
    user.apply(small())
    user.wait("demo", "Ready")
    kubectl = user.cluster.kubectl
    report = json.loads(kubectl("kvpp", "ports", "-o", "json"))
    mine = [claim for claim in report["claims"] if claim["namespace"] == user.namespace]
    assert {(c["role"], c["engine"], c["purpose"], c["revision"]): (c["first"], c["last"]) for c in mine} == held(user)
    assert f" {user.namespace}/demo " in kubectl("kvpp", "ports")
    places = {pod["metadata"]["labels"][names.ROLE]: pod["spec"]["nodeName"] for pod in user.items("pods")}
    on_node = json.loads(kubectl("kvpp", "ports", "--node", places["prefill"], "-o", "json"))
    roles = {role for role, node in places.items() if node == places["prefill"]}
    assert {claim["role"] for claim in on_node["claims"] if claim["namespace"] == user.namespace} == roles
    assert (on_node["npus"], on_node["reserved"][0]["last"]) == (8, 20800)
    with pytest.raises(ProgramError, match="there is no node nowhere"):
        kubectl("kvpp", "ports", "--node", "nowhere")


def test_an_operator_that_may_not_touch_the_ledger_says_so(user: Cluster, operator: Operator) -> None:
    """Rights are taken away for a moment; the engines that run are not disturbed."""
    user.apply(small())
    user.wait("demo", "Ready")
    running = pods(user)
    role = json.loads(user.cluster.kubectl("get", "clusterrole", "kvpp-kvpp-operator", "-o", "json"))
    rules = [rule for rule in role["rules"] if "kvppportledgers" not in rule.get("resources", ())]
    assert len(rules) == len(role["rules"]) - 1
    set_rules(user, rules)
    try:
        user.apply(small(prefill__replicas=2))
        refused = user.wait("demo", "PortsAllocated", "False")
        assert 'cannot get resource "kvppportledgers"' in refused["message"]
        assert pods(user) == running
    finally:
        set_rules(user, role["rules"])
    user.wait("demo", "PortsAllocated")
    eventually(lambda: len(held(user)) == 6)


def set_rules(user: Cluster, rules: list[dict[str, Any]]) -> None:
    patch = [{"op": "replace", "path": "/rules", "value": rules}]
    user.cluster.kubectl("patch", "clusterrole", "kvpp-kvpp-operator", "--type=json", "-p", json.dumps(patch))


async def test_a_restart_asks_the_ledger_nothing_and_writes_nothing(
    user: Cluster, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    async with WriteProxy.of(operator_kubeconfig) as proxy:
        operator = Operator(proxy.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path / "log", (user.namespace,))
        await asyncio.to_thread(operator.start)
        await asyncio.to_thread(user.apply, small())
        await asyncio.to_thread(user.wait, "demo", "Ready")
        await asyncio.to_thread(user.wait, "demo", "Reconciling", "False")
        await asyncio.to_thread(operator.stop)
        proxy.forget()
        await asyncio.to_thread(operator.start)
        await asyncio.sleep(1)
        await asyncio.to_thread(operator.stop)
        assert proxy.writes == []
        assert proxy.requests["get", "kvppportledgers"] == 0
