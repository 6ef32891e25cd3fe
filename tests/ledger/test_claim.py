"""The ledger as a value: order, conflicts, the last look."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ports import PortRange

BLOCKS = st.lists(st.builds(PortRange.of, st.integers(1, 60), st.integers(1, 12)), max_size=15)


def holder(engine: int = 0) -> Holder:
    return Holder(Owner("default", "demo", "u1"), "prefill", engine, "r1")


def claim(block: str, engine: int = 0, purpose: str = KV) -> Claim:
    return Claim(PortRange.parse(block), holder(engine), purpose)


def test_a_ledger_has_one_order_and_no_doubles() -> None:
    claims = (claim("5-6"), claim("1-9", 1), claim("1-4", 2), claim("5-6"))
    ledger = Ledger(claims)
    assert [str(each.block) for each in ledger] == ["1-4", "1-9", "5-6"]
    assert ledger == Ledger(claims[::-1])
    assert (len(ledger), ledger.ports) == (3, 15)


@given(blocks=BLOCKS)
@settings(deadline=None, derandomize=True, database=None)
def test_conflicts_are_all_pairs_that_share_a_port(blocks: list[PortRange]) -> None:
    ledger = Ledger(tuple(Claim(block, holder(index), KV) for index, block in enumerate(blocks)))
    expected = {pair for pair in combinations(ledger.claims, 2) if pair[0].block.overlaps(pair[1].block)}
    assert expected == set(ledger.conflicts())
    assert ledger.is_sound() is (not expected)


def test_two_blocks_for_one_purpose_are_not_sound() -> None:
    assert not Ledger((claim("1-4"), claim("5-8"))).is_sound()
    assert Ledger((claim("1-4"), claim("5-8", purpose=HOST))).is_sound()


def test_a_claim_is_found_by_holder_and_purpose() -> None:
    ledger = Ledger((claim("1-4"), claim("5-8", purpose=HOST)))
    assert (ledger.claims[1], None) == (ledger.find(holder(), HOST), ledger.find(holder(1), KV))


def test_the_last_look() -> None:
    """True only while the very claims stand in the ledger and nothing has been put onto them."""
    mine = (claim("1-4"), claim("5-8", purpose=HOST))
    assert Ledger(mine).holds(mine)
    assert Ledger(mine).add([claim("9-12", 1)]).holds(mine)
    assert not Ledger(mine[:1]).holds(mine)
    assert not Ledger((claim("2-5"), mine[1])).holds(mine)
    assert not Ledger(mine).add([claim("8-12", 1)]).holds(mine)
    assert Ledger(mine).add([claim("9-12", 1), claim("12-13", 2)]).holds(mine)  # others' trouble is theirs
