"""Pools in a deployment's life: what runs, runs on; what a change costs is said while it is under way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import specs

from kvpp_operator import names
from kvpp_operator.cluster.cache import reduce_pod
from kvpp_operator.configuration import Configuration
from kvpp_operator.decide import Decision, decide
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.ledger.live import live_claims, signs
from kvpp_operator.manifest import Manifest, key_of
from kvpp_operator.render.pool import meta_service
from kvpp_operator.world import World

CONFIGURATION = Configuration()
LATEST = {"engine": {"version": "latest"}}
SPLIT = (
    specs.DISAGGREGATED | LATEST | {"pooling": {"backend": "Memcache", "memcache": {"metaService": {"replicas": 2}}}}
)
THRESHOLD = {"ock.mmc.evict_threshold_high": "85"}


def body(spec: dict[str, Any] = SPLIT, **changes: Any) -> dict[str, Any]:
    return specs.deployment(spec, **changes)


def decided(document: dict[str, Any], world: World) -> Decision:
    decision = decide(document, world, CONFIGURATION)
    assert decision.wished is not None, [str(finding) for finding in decision.report.findings]
    return decision


def after(decision: Decision, *, up: bool = True) -> World:
    """The world once the decision is carried out; `up`: every workload is as its controller would leave it."""
    owned = {key_of(manifest): copy.deepcopy(manifest) for manifest in decision.wished or ()}
    for manifest in owned.values():
        replicas = manifest.get("spec", {}).get("replicas", 1)
        if up and manifest["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet"):
            manifest["status"] = {"updatedReplicas": replicas, "readyReplicas": replicas}
    return World(owned=owned)


def pools(decision: Decision) -> dict[str, Manifest]:
    """Objects of the pools' services by kind and name."""
    wished = decision.wished or ()
    return {str(key_of(one)): one for one in wished if one["metadata"]["labels"].get(names.POOL)}


def services(decision: Decision) -> list[str]:
    return [one["metadata"]["name"] for one in pools(decision).values() if one["kind"] in ("StatefulSet", "Deployment")]


def engines(decision: Decision) -> set[str]:
    wished = decision.wished or ()
    return {one["metadata"]["name"] for one in wished if names.ENGINE in one["metadata"]["labels"]}


def costs(decision: Decision) -> list[str]:
    return [finding.message for finding in decision.report.findings if finding.rule == "POOL050"]


def test_deciding_again_decides_the_same() -> None:
    first = decided(body(), World())
    for up in (False, True):
        assert decided(body(), after(first, up=up)).wished == first.wished


def test_scaling_leaves_the_meta_service_alone() -> None:
    first = decided(body(), World())
    eight = decided(body(prefill__replicas=8), after(first))
    assert pools(eight) == pools(first)
    assert len(engines(eight)) == 9
    assert costs(eight) == []


def test_a_newer_operator_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = decided(body(), World())
    monkeypatch.setattr(meta_service, "LEASE_SECONDS", 15)  # stands for any difference of a newer render
    assert decided(body(), after(first)).wished == first.wished
    edited = decided(body(pooling__memcache__metaConfig=THRESHOLD), after(first))
    assert [one["spec"] for one in pools(edited).values() if one["kind"] == "Lease"] == [{"leaseDurationSeconds": 15}]


def test_a_threshold_replaces_it_once_and_the_cost_is_said_until_it_is_up() -> None:
    edited = body(pooling__memcache__metaConfig=THRESHOLD)
    first = decided(body(), World())
    second = decided(edited, after(first))
    assert engines(second) == engines(first)
    assert {key for key, one in pools(second).items() if one != pools(first)[key]} == {
        f"ConfigMap default/{services(first)[0]}", f"StatefulSet default/{services(first)[0]}",
    }  # fmt: skip
    [cost] = costs(second)
    assert "metaConfig ock.mmc.evict_threshold_high default → 85" in cost
    under_way = decided(edited, after(second, up=False))
    assert under_way.wished == second.wished
    assert costs(under_way) == costs(second)
    settled = decided(edited, after(second))
    assert pools(settled) == pools(second)
    assert costs(settled) == []  # the record of the old one goes with this decision, and no event may follow
    assert decided(edited, after(settled)).wished == settled.wished


def test_another_layout_gets_a_pool_of_its_own_and_the_old_one_stays_while_it_is_used() -> None:
    first = decided(body(), World())
    edited = body(prefill__parallelism__tensor=4)
    second = decided(edited, after(first))
    assert set(services(first)) < set(services(second))
    assert len(services(second)) == 2
    [cost] = costs(second)
    assert "tensor parallelism 8 → 4" in cost
    third = decided(edited, after(second, up=False))  # its engines of old are pruned
    assert set(services(third)) == set(services(second)) - set(services(first))
    assert costs(third) == [cost]
    assert costs(decided(edited, after(third))) == []


def test_giving_the_pool_up_keeps_it_while_engines_are_in_it() -> None:
    first = decided(body(), World())
    without = {key: value for key, value in SPLIT.items() if key != "pooling"}
    second = decided(body(without), after(first))
    assert services(second) == services(first)
    assert pools(decided(body(without), after(second))) == {}


def test_a_lost_record_is_written_again() -> None:
    first = decided(body(), World())
    owned = {key: one for key, one in after(first).owned.items() if key.kind != "ControllerRevision"}
    assert decided(body(), World(owned=owned)).wished == first.wished


@pytest.mark.parametrize("address", ["m:5001", "other:5000"])
def test_another_existing_pool_is_cold_too(address: str) -> None:
    def external(where: str) -> dict[str, Any]:
        return body(
            specs.UNIFIED,
            pooling={"backend": "Memcache", "memcache": {"metaService": {"external": {"address": where}}}},
        )

    first = decided(external("m:5000"), World())
    assert pools(first) == {}
    second = decided(external(address), after(first))
    [cost] = costs(second)
    assert f"address m:5000 → {address}" in cost
    assert costs(decided(external(address), after(second))) == []


def test_a_refused_edit_keeps_the_pool() -> None:
    first = decided(body(), World())
    assert decide(body(pooling__memcache__metaConfig={"a": "b"}), after(first), CONFIGURATION).wished is None


ON_HOST = {"metaService": {"podTemplate": {"spec": {"hostNetwork": True}}}}


def host_world(decision: Decision) -> World:
    assert decision.settled is not None
    owned = after(decision).owned
    return World(owned, (), decision.settled.ledger, live_claims(owned.values()), signs(owned.values()))


def bound(decision: Decision) -> dict[str, int]:
    [service] = [one for one in pools(decision).values() if one["kind"] == "Deployment"]
    [container] = service["spec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for port in container["ports"]}


@pytest.mark.parametrize("networking", [{}, {"hostNetwork": True, "interface": "eth0"}])
def test_a_meta_service_on_a_host_binds_claimed_ports(networking: dict[str, Any]) -> None:
    """Its own 8000 is the engines' API there. Engines reach it by its Service, so their file names no port of a host."""
    document = body(specs.UNIFIED, pooling={"backend": "Memcache", "memcache": ON_HOST}, networking=networking)
    first = decided(document, World())
    assert first.settled is not None
    [claim] = [claim for claim in first.settled.claims if claim.holder.role == "meta-service"]
    ports = list(range(claim.block.first, claim.block.last + 1))
    assert list(bound(first).values()) == ports
    assert len(ports) == 3
    assert not {5000, 6000, 8000, *range(20000, 20801)} & set(ports)
    [service] = [one for one in pools(first).values() if one["kind"] == "Service"]
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [
        (5000, "rpc"), (6000, "store"), (8000, "http"),
    ]  # fmt: skip
    [file] = [one for one in pools(first).values() if one["kind"] == "ConfigMap"]
    assert f"metrics_url = http://$(META_POD_IP):{bound(first)['http']}" in file["data"]["mmc-meta.conf"]
    assert live_claims(first.wished or ()) == first.settled.ledger.claims
    again = decided(document, host_world(first))
    assert again.wished == first.wished
    assert again.settled is not None
    assert again.settled.ledger == first.settled.ledger


def test_the_claim_of_a_pool_stays_as_long_as_its_pod() -> None:
    document = body(specs.UNIFIED, pooling={"backend": "Memcache", "memcache": ON_HOST})
    world = host_world(decided(document, World()))
    without = decided(body(specs.UNIFIED), world)
    assert without.settled is not None
    assert [claim.holder.role for claim in without.settled.ledger] == ["meta-service"]
    gone = decided(body(specs.UNIFIED), World(ledger=without.settled.ledger))
    assert gone.settled is not None
    assert gone.settled.ledger == Ledger()
    assert str(next(iter(without.settled.ledger)).holder) == "meta-service of default/demo"


def test_a_lost_ledger_is_read_off_the_pools_pods() -> None:
    document = body(specs.UNIFIED, pooling={"backend": "Memcache", "memcache": ON_HOST})
    first = decided(document, World())
    [workload] = [one for one in pools(first).values() if one["kind"] == "Deployment"]
    template = workload["spec"]["template"]
    pod = reduce_pod({**template, "metadata": {**template["metadata"], "name": "p", "namespace": "default"}})
    assert first.settled is not None
    known = first.settled.ledger.claims
    assert live_claims([pod]) == tuple(claim._replace(holder=claim.holder.without_uid) for claim in known)
