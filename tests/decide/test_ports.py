"""Decisions with ports of hosts: what the ledger must hold, what its answer is called, what makes way."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import specs

from kvpp_operator import names
from kvpp_operator.cluster.satisfied import satisfied
from kvpp_operator.configuration import Configuration
from kvpp_operator.decide import Decision, decide
from kvpp_operator.ledger.claim import KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.live import live_claims, signs
from kvpp_operator.manifest import key_of
from kvpp_operator.ports import PortRange
from kvpp_operator.world import World

CONFIGURATION = Configuration()
HOST: dict[str, Any] = {"networking": {"hostNetwork": True, "interface": "eth0"}}
STRANGER = Holder(Owner("team-b", "other", "u-9"), "prefill", 0, "r9")


def body(**changes: Any) -> dict[str, Any]:
    return specs.deployment(specs.DISAGGREGATED, **{**copy.deepcopy(HOST), **changes})


def after(decision: Decision, ledger: Ledger | None = None) -> World:
    """The world once the decision is carried out: objects stand, the ledger is written."""
    assert decision.wished is not None
    assert decision.settled is not None
    owned = {key_of(manifest): copy.deepcopy(manifest) for manifest in decision.wished}
    return World(owned, (), ledger or decision.settled.ledger, live_claims(owned.values()), signs(owned.values()))


def blocks(decision: Decision) -> dict[str, str]:
    assert decision.settled is not None
    return {f"{c.holder.role} {c.holder.engine} {c.purpose}": str(c.block) for c in decision.settled.claims}


def ports_said(decision: Decision) -> tuple[str, str]:
    return decision.report.ports.reason, decision.report.ports.message


def test_engines_stand_on_what_they_claim() -> None:
    decision = decide(body(), World(), CONFIGURATION)
    assert blocks(decision) == {
        "prefill 0 kv": "22016-22024", "prefill 0 host": "17020-17038",
        "decode 0 kv": "22000-22015", "decode 0 host": "17001-17019",
    }  # fmt: skip
    assert decision.settled is not None
    assert live_claims(decision.wished or ()) == decision.settled.ledger.claims
    assert ports_said(decision) == ("Claimed", "")


def test_deciding_again_claims_and_frees_nothing() -> None:
    first = decide(body(), World(), CONFIGURATION)
    again = decide(body(), after(first), CONFIGURATION)
    assert (again.settled, again.wished) == (replace(first.settled, ledger=again.settled.ledger), first.wished)  # type: ignore[type-var,union-attr]
    assert again.settled.ledger == first.settled.ledger  # type: ignore[union-attr]


def test_every_object_is_satisfied_with_itself() -> None:
    """Else an operator that starts would write each revision again: its templates have several ports 0."""
    wished = (
        decide(body(decode__parallelism={"data": 4, "tensor": 2, "expert": True}), World(), CONFIGURATION).wished or ()
    )
    assert [key_of(manifest) for manifest in wished if not satisfied(manifest, copy.deepcopy(manifest))] == []


def test_a_full_window_is_a_matter_of_ports_not_of_the_spec() -> None:
    taken = Ledger((Claim(PortRange(22000, 22019), STRANGER, KV),))
    wanted = body(networking={**HOST["networking"], "kvPorts": {"first": 22000, "last": 22024}})
    refused = decide(wanted, World(ledger=taken), CONFIGURATION)
    assert (refused.wished, refused.report.errors) == (None, [])
    needs = "kv ports of prefill and decode: 25 needed (2 blocks, the longest 16)"
    has = "22000-22024 has 5 free, the longest run 5; team-b/other holds most of it: 20 ports"
    assert ports_said(refused) == ("PortsUnavailable", f"{needs}, but {has}")
    assert decide(wanted, World(), CONFIGURATION).wished is not None


def test_a_pin_that_meets_a_claim_names_its_owner() -> None:
    taken = Ledger((Claim(PortRange(22008, 22016), STRANGER, KV),))
    refused = decide(body(prefill__kvPort=22000), World(ledger=taken), CONFIGURATION)
    assert ports_said(refused) == (
        "PortsUnavailable",
        "prefill engine 0 needs 22000-22008 (9 ports, pin 22000), but prefill engine 0 of team-b/other holds 22008-22016",
    )


def test_a_pin_that_no_ledger_could_answer_is_a_matter_of_the_spec() -> None:
    refused = decide(body(prefill__kvPort=22000, decode__kvPort=22008), World(), CONFIGURATION)
    assert [(finding.rule, finding.path) for finding in refused.report.errors] == [("PORT004", "spec.decode.kvPort")]


def test_a_rollout_holds_both_revisions_blocks_until_the_old_pods_are_gone() -> None:
    old = decide(body(), World(), CONFIGURATION)
    new = decide(body(model__maxModelLen=4096), after(old), CONFIGURATION)
    assert old.settled is not None
    assert new.settled is not None
    assert not {c.block for c in new.settled.claims} & {c.block for c in old.settled.claims}
    assert set(new.settled.ledger) == {*old.settled.claims, *new.settled.claims}
    quiet = decide(body(model__maxModelLen=4096), after(new), CONFIGURATION)
    assert quiet.settled is not None
    assert set(quiet.settled.ledger) == set(new.settled.claims)


def test_a_pinned_role_cannot_surge_so_the_engines_in_its_way_go_first() -> None:
    old = decide(body(prefill__kvPort=23000), World(), CONFIGURATION)
    refused = decide(body(prefill__kvPort=23000, model__maxModelLen=4096), after(old), CONFIGURATION)
    assert refused.wished is None
    [key] = refused.make_way
    assert after(old).owned[key]["metadata"]["labels"][names.ROLE] == "prefill"
    assert ports_said(refused)[0] == "MakingWay"
    assert "until its pods are gone: a pinned role can't surge" in refused.report.ports.message
    # The workload is deleted, its pod still stops: nothing more to do, and no person is needed.
    stopping = replace(after(old), owned={k: m for k, m in after(old).owned.items() if k != key})
    waiting = decide(body(prefill__kvPort=23000, model__maxModelLen=4096), stopping, CONFIGURATION)
    assert (waiting.make_way, ports_said(waiting)[0]) == ((), "MakingWay")


def test_nothing_makes_way_for_a_pin_on_anothers_ports() -> None:
    old = decide(body(prefill__kvPort=23000), World(), CONFIGURATION)
    world = after(old)
    crowded = replace(world, ledger=world.ledger.add([Claim(PortRange(24000, 24008), STRANGER, KV)]))
    refused = decide(body(prefill__kvPort=23995, model__maxModelLen=4096), crowded, CONFIGURATION)
    assert (refused.wished, refused.make_way) == (None, ())


def test_a_pin_moves_no_engine_of_the_present_revision() -> None:
    old = decide(body(), World(), CONFIGURATION)
    pinned = decide(body(prefill__kvPort=25000), after(old), CONFIGURATION)
    assert blocks(pinned) == blocks(old)
    assert ports_said(pinned) == (
        "Claimed", "A pin moves engines with their next revision; until then: prefill engine 0 at 22016-22024.",
    )  # fmt: skip


def test_on_the_pod_network_nothing_is_claimed_and_old_claims_go_with_the_pods() -> None:
    old = decide(body(), World(), CONFIGURATION)
    world = after(old)
    moved = decide(body(networking={}), world, CONFIGURATION)
    assert old.settled is not None
    assert moved.settled is not None
    assert (moved.settled.claims, moved.settled.ledger) == ((), old.settled.ledger)
    quiet = decide(body(networking={}), replace(after(moved), ledger=world.ledger), CONFIGURATION)
    assert quiet.settled is not None
    assert quiet.settled.ledger == Ledger()


def test_engines_that_run_on_the_same_ports_are_left_and_reported() -> None:
    first = decide(body(), World(), CONFIGURATION)
    world = after(first)
    mine = next(claim for claim in world.ledger if claim.key[1] == KV and claim.holder.role == "prefill")
    other = Claim(PortRange(mine.block.first + 1, mine.block.last + 1), STRANGER, KV)
    both = replace(world, ledger=world.ledger.add([other]), live_claims=(*world.live_claims, other))
    decision = decide(body(), both, CONFIGURATION)
    assert decision.wished == first.wished
    assert ports_said(decision) == ("PortConflict", f"{mine} and {other} overlap")


@pytest.mark.parametrize("networking", [HOST["networking"], {}], ids=["host network", "pod network"])
def test_engines_of_a_refused_spec_still_show_their_blocks(networking: dict[str, Any]) -> None:
    first = decide(body(networking=networking), World(), CONFIGURATION)
    refused = decide(body(networking=networking, prefill__graphMode="Full"), after(first), CONFIGURATION)
    assert refused.wished is None
    assert [(one.kv_port, one.kv_port_last) for one in refused.wanted] == [
        (one.kv_port, one.kv_port_last) for one in first.wanted
    ]
