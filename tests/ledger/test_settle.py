"""Healing, releasing and merging, case by case; `test_machine` has them all together."""

from __future__ import annotations

from kvpp_operator.ledger.allocate import Request
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.settle import Change, merge, rebuild, release, settle
from kvpp_operator.ledger.window import kv_window
from kvpp_operator.ports import PortRange

A, B = Owner("default", "a", "ua"), Owner("default", "b", "ub")


def holder(owner: Owner = A, engine: int = 0, revision: str = "r1") -> Holder:
    return Holder(owner, "prefill", engine, revision)


def claim(block: str, who: Holder | None = None, purpose: str = KV) -> Claim:
    return Claim(PortRange.parse(block), who or holder(), purpose)


def healings(changes: tuple[Change, ...]) -> list[str]:
    return [f"{change.healing} {change.claim.holder.owner.name} {change.claim.block}" for change in changes]


def test_a_ledger_that_agrees_is_left_alone() -> None:
    ledger = Ledger((claim("22000-22008"), claim("22009-22017", holder(B))))
    rebuilt = rebuild(ledger, [claim("22000-22008")])
    assert (ledger, ()) == (rebuilt.ledger, rebuilt.changes)


def test_a_lost_ledger_is_rebuilt_from_what_runs() -> None:
    live = (claim("22000-22008"), claim("17001-17019", purpose=HOST), claim("22009-22017", holder(B)))
    rebuilt = rebuild(Ledger(), live)
    assert Ledger(live) == rebuilt.ledger
    assert {change.healing for change in rebuilt.changes} == {"restored"}


def test_a_pod_without_uid_and_its_workload_are_one() -> None:
    """Else every engine would be in conflict with its own pod."""
    workload = claim("22000-22008")
    pod = Claim(workload.block, workload.holder.without_uid, KV)
    for ledger in (Ledger(), Ledger((workload,))):
        rebuilt = rebuild(ledger, [workload, pod])
        assert Ledger((workload,)) == rebuilt.ledger
        assert "conflict" not in {change.healing for change in rebuilt.changes}


def test_what_runs_wins_over_what_is_written() -> None:
    """Moved by hand, onto ports of a claim that does not run: neither the engine nor its claim moves; the other must."""
    ledger = Ledger((claim("22010-22018"), claim("22005-22009", holder(B))))
    rebuilt = rebuild(ledger, [claim("22000-22008")])
    assert Ledger((claim("22000-22008"),)) == rebuilt.ledger
    assert healings(rebuilt.changes) == ["corrected a 22000-22008", "dropped b 22005-22009"]
    assert [change.message for change in rebuilt.changes] == [
        (
            "the ledger said 22010-22018 (kv, prefill engine 0 of default/a, revision r1), "
            "but 22000-22008 (kv, prefill engine 0 of default/a, revision r1) runs: corrected"
        ),
        (
            "the ledger gave 22005-22009 (kv, prefill engine 0 of default/b, revision r1) ports of "
            "22000-22008 (kv, prefill engine 0 of default/a, revision r1): dropped, for it does not run"
        ),
    ]


def test_of_two_claims_that_overlap_and_do_not_run_the_lower_stays() -> None:
    ledger = Ledger((claim("22000-22008"), claim("22008-22016", holder(B)), claim("22017-22025", holder(B, 1))))
    rebuilt = rebuild(ledger, [])
    assert [claim("22000-22008"), claim("22017-22025", holder(B, 1))] == list(rebuilt.ledger)


def test_a_holder_keeps_one_block_for_a_purpose() -> None:
    rebuilt = rebuild(Ledger((claim("22000-22008"), claim("23000-23008"))), [])
    assert [claim("22000-22008")] == list(rebuilt.ledger)


def test_a_running_holders_other_claims_go_before_those_that_do_not_run() -> None:
    """What the object does not show (a claim for a purpose that only a newer operator knows) belongs to an engine that runs."""
    ledger = Ledger((claim("22000-22008"), claim("24000-24009", holder(B)), claim("24005-24006", purpose="later")))
    rebuilt = rebuild(ledger, [claim("22000-22008")])
    assert [claim("22000-22008"), claim("24005-24006", purpose="later")] == list(rebuilt.ledger)


def test_two_running_engines_in_conflict_are_both_kept_and_named() -> None:
    """No way out without moving one; people decide."""
    live = (claim("22000-22008"), claim("22008-22016", holder(B)))
    rebuilt = rebuild(Ledger(), live)
    assert Ledger(live) == rebuilt.ledger
    assert healings(rebuilt.changes)[-1] == "conflict a 22000-22008"
    assert rebuilt.changes[-1].message.endswith("both run: neither is moved; delete one of the two engines")
    assert rebuild(rebuilt.ledger, live).ledger == rebuilt.ledger


def test_release_frees_what_nobody_keeps() -> None:
    ledger = Ledger((claim("22000-22008"), claim("22009-22017", holder(engine=1)), claim("22018-22026", holder(B))))
    assert [holder()] == [each.holder for each in release(ledger, {holder()})]
    assert [holder(), holder(B)] == [each.holder for each in release(ledger, {holder()}, owners={A})]
    assert len(release(ledger, ())) == 0


def test_pods_that_know_no_uid_keep_their_namesakes() -> None:
    ledger = Ledger((claim("22000-22008"), claim("22009-22017", holder(Owner("default", "a", "older")))))
    assert ledger == release(ledger, {holder().without_uid})


def test_an_old_revision_is_freed_once_its_pods_are_gone() -> None:
    old, new = claim("22000-22008"), Request(holder(revision="r2"), KV, 9, (kv_window(8),))
    rolling = settle(Ledger((old,)), [new], live=[old], keep=(), owners={A})
    assert [str(each.block) for each in rolling.claims] == ["22009-22017"]
    assert (len(rolling.ledger), rolling.freed) == (2, ())
    done = settle(rolling.ledger, [new], live=rolling.claims, keep=(), owners={A})
    assert (rolling.claims, (old,)) == (done.claims, done.freed)


def test_a_refused_turn_still_heals_and_frees() -> None:
    lost, old = claim("22000-22008", holder(B)), claim("23000-23008", holder(revision="r0"))
    pinned = Request(holder(), KV, 9, (kv_window(8),), pin=22000)
    settled = settle(Ledger((old,)), [pinned], live=[lost], keep=(), owners={A})
    assert settled.refusal is not None
    assert "prefill engine 0 of default/b holds 22000-22008" in settled.refusal.message
    assert (Ledger((lost,)), (old,)) == (settled.ledger, settled.freed)


def test_pods_of_a_deleted_deployment_are_told_from_its_namesake_by_their_block() -> None:
    """`kubectl delete` and `apply` at once: the old pods still drain, the new engine has other ports and keeps them."""
    old, new = claim("22000-22008", holder(Owner("default", "a", "older"))), claim("22009-22017")
    pod = Claim(old.block, old.holder.without_uid, KV)
    settled = settle(
        Ledger((old, new)), [Request(holder(), KV, 9, (kv_window(8),))], live=[pod, new], keep=(), owners=None
    )
    assert (Ledger((old, new)), (new,), ()) == (settled.ledger, settled.claims, settled.changes)


def test_merge_carries_new_claims_over_where_they_still_fit() -> None:
    base = Ledger((claim("22000-22008"),))
    ours = base.add([claim("22009-22017", holder(engine=1)), claim("22018-22026", holder(engine=2))])
    theirs = base.add([claim("22010-22018", holder(B))])
    merged = merge(base, ours, theirs, live=())
    assert (theirs, ours.claims[1:]) == (merged.ledger, merged.lost)
    elsewhere = base.add([claim("25000-25008", holder(B))])
    merged = merge(base, ours, elsewhere, live=())
    assert ({*ours, *elsewhere}, ()) == (set(merged.ledger), merged.lost)


def test_merge_frees_nothing_and_moves_nothing() -> None:
    """The other writer may have kept what we freed, or given our holder its block already."""
    base = Ledger((claim("22000-22008"),))
    ours = Ledger((claim("22000-22008", holder(B)),))
    theirs = base.add([claim("26000-26008", holder(B))])
    merged = merge(base, ours, theirs, live=())
    assert (theirs, tuple(ours)) == (merged.ledger, merged.lost)


def test_merge_looks_at_what_runs_too() -> None:
    """Somebody deleted the ledger between: our new claim must not meet an engine that is no longer in it."""
    running = claim("22000-22008", holder(B))
    ours = Ledger((claim("22000-22008"),))
    merged = merge(Ledger(), ours, Ledger(), live=[running])
    assert (Ledger((running,)), tuple(ours)) == (merged.ledger, merged.lost)
