"""State in, decision out: what runs, runs on until the user changes the spec."""

from __future__ import annotations

import copy
from typing import Any

import specs

from kvpp_operator import names
from kvpp_operator.configuration import Configuration
from kvpp_operator.decide import Decision, decide, is_engine
from kvpp_operator.manifest import Manifest, key_of
from kvpp_operator.world import World

CONFIGURATION = Configuration()


def after(decision: Decision, world: World | None = None) -> World:
    """The world once the decision is carried out."""
    if decision.wished is None:
        return world or World()
    return World(owned={key_of(manifest): copy.deepcopy(manifest) for manifest in decision.wished})


def engines(decision: Decision) -> dict[str, Manifest]:
    return {
        manifest["metadata"]["name"]: manifest for manifest in of_kind(decision, "Deployment") if is_engine(manifest)
    }


def router(decision: Decision, kind: str = "Deployment") -> Manifest:
    [found] = [one for one in of_kind(decision, kind) if one["metadata"]["name"] == "demo-router"]
    return found


def of_kind(decision: Decision, kind: str) -> list[Manifest]:
    return [manifest for manifest in decision.wished or () if manifest["kind"] == kind]


def first(**changes: Any) -> tuple[dict[str, Any], Decision, World]:
    body = specs.deployment(specs.DISAGGREGATED, **changes)
    decision = decide(body, World(), CONFIGURATION)
    return body, decision, after(decision)


def test_a_first_spec_makes_everything_of_revision_one() -> None:
    _, decision, _ = first()
    assert [manifest["kind"] for manifest in decision.wished or ()] == [
        "ServiceAccount", "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "ControllerRevision",
        *["PodDisruptionBudget"] * 3, *["Service"] * 5, *["Deployment"] * 3,
    ]  # fmt: skip
    [revision] = [manifest for manifest in decision.wished or () if manifest["kind"] == "ControllerRevision"]
    assert revision["revision"] == 1


def test_deciding_again_decides_the_same() -> None:
    body, decision, world = first()
    assert decide(body, world, CONFIGURATION).wished == decision.wished


def test_scaling_leaves_the_other_engines_as_they_are() -> None:
    _, before, world = first()
    scaled = decide(specs.deployment(specs.DISAGGREGATED, prefill__replicas=3), world, CONFIGURATION)
    assert engines(before).items() <= engines(scaled).items()
    assert len(engines(scaled)) == 4


def test_a_changed_wish_is_a_new_revision_with_new_names() -> None:
    _, before, world = first()
    changed = decide(specs.deployment(specs.DISAGGREGATED, model__maxModelLen=4096), world, CONFIGURATION)
    assert not engines(before).keys() & engines(changed).keys()
    [revision] = [manifest for manifest in changed.wished or () if manifest["kind"] == "ControllerRevision"]
    assert revision["revision"] == 2


def test_formatting_and_spelled_out_defaults_are_no_change() -> None:
    _, before, world = first()
    said = decide(
        specs.deployment(specs.DISAGGREGATED, prefill__graphMode="Eager", kvpp={"enabled": True}), world, CONFIGURATION
    )
    assert said.wished == before.wished


def test_the_router_and_a_suspension_do_not_touch_engines() -> None:
    _, before, world = first()
    assert engines(
        decide(specs.deployment(specs.DISAGGREGATED, router={"replicas": 3}), world, CONFIGURATION)
    ) == engines(before)
    assert decide(specs.deployment(specs.DISAGGREGATED, suspend=True), world, CONFIGURATION).wished is None


def test_the_router_outlives_engines_and_follows_their_revision() -> None:
    _, before, world = first()
    after = decide(specs.deployment(specs.DISAGGREGATED, model__maxModelLen=4096), world, CONFIGURATION)
    assert not engines(before).keys() & engines(after).keys()
    assert router(after) == router(before)
    for decision in (before, after):
        assert router(decision, "Service")["metadata"]["labels"][names.REVISION] == decision.report.revision
        members = {one["metadata"]["labels"].get(names.REVISION) for one in of_kind(decision, "Service")}
        assert members == {decision.report.revision, None}


def test_the_router_of_a_kept_revision_serves_that_one() -> None:
    """An operator that would render engines otherwise leaves them, and the router with them."""
    body, before, world = first()
    mirrored = decide(body, world, Configuration(imageRepository="mirror.example/vllm-ascend"))
    assert mirrored.report.update_available
    assert (router(mirrored), router(mirrored, "Service")) == (router(before), router(before, "Service"))


def test_an_operator_that_would_render_otherwise_changes_nothing_and_says_so() -> None:
    """An older operator's template stays in force while the user's wish is the same."""
    body, _, world = first()
    [key] = [key for key in world.owned if key.kind == "ControllerRevision"]
    stored = copy.deepcopy(world.owned[key])
    stored["data"]["hash"] = "0123456789"
    stored["data"]["templates"]["prefill"]["workload"]["spec"]["progressDeadlineSeconds"] = 77
    upgraded = decide(body, World(owned={key: stored}), CONFIGURATION)
    assert upgraded.report.revision == "0123456789"
    assert upgraded.report.update_available not in ("", "0123456789")
    deadlines = {
        e["metadata"]["labels"][names.ROLE]: e["spec"]["progressDeadlineSeconds"] for e in engines(upgraded).values()
    }
    assert deadlines["prefill"] == 77


def test_another_operator_configuration_is_an_update_not_a_restart() -> None:
    body, before, world = first()
    mirrored = decide(body, world, Configuration(imageRepository="mirror.example/vllm-ascend"))
    assert engines(mirrored) == engines(before)
    assert mirrored.report.update_available


def test_an_invalid_edit_applies_nothing_and_reports_the_running_engines() -> None:
    _, before, world = first()
    edited = decide(specs.deployment(specs.DISAGGREGATED, prefill__graphMode="Full"), world, CONFIGURATION)
    assert edited.wished is None
    assert {engine.workload["metadata"]["name"] for engine in edited.wanted} == engines(before).keys()
    assert [finding.rule for finding in edited.report.findings] == ["GRAPH001"]


def test_healing_the_spec_goes_on_where_it_was() -> None:
    body, before, world = first()
    assert decide(body, world, CONFIGURATION).wished == before.wished


def test_a_revision_that_nobody_can_read_is_replaced() -> None:
    body, _, world = first()
    [key] = [key for key in world.owned if key.kind == "ControllerRevision"]
    broken = {**world.owned[key], "data": {"format": 99}}
    assert decide(body, World(owned={key: broken}), CONFIGURATION).wished is not None


def test_prefill_and_decode_carry_the_same_revision_and_different_blocks() -> None:
    _, decision, _ = first()
    revisions = {manifest["metadata"]["labels"][names.REVISION] for manifest in engines(decision).values()}
    assert len(revisions) == 1
    assert [(engine.kv_port, engine.kv_port_last) for engine in decision.wanted] == [(22000, 22008), (22009, 22024)]
