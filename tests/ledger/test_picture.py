"""The picture of a window: what a person sees of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpp_operator.ledger.claim import KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.picture import picture
from kvpp_operator.ledger.window import Window
from kvpp_operator.ports import PortRange

WINDOW = Window(100, 199, (PortRange(150, 159),))


def claim(block: str, name: str) -> Claim:
    return Claim(PortRange.parse(block), Holder(Owner("default", name, ""), "prefill", 0, "r1"), KV)


def test_who_owns_what() -> None:
    ledger = Ledger(
        (claim("90-104", "a"), claim("105-114", "b"), claim("110-120", "c"), claim("155-161", "a"), claim("300", "d"))
    )
    drawn = picture(WINDOW, ledger, columns=10, lines=2)
    segments = [
        (str(part.block), part.use, "".join(each.holder.owner.name for each in part.claims)) for part in drawn.segments
    ]
    assert segments == [
        ("100-104", "claimed", "a"), ("105-109", "claimed", "b"), ("110-114", "conflict", "bc"), ("115-120", "claimed", "c"),
        ("121-149", "free", ""), ("150-154", "reserved", ""), ("155-161", "claimed", "a"), ("162-199", "free", ""),
    ]  # fmt: skip
    assert [(str(row.block), row.cells) for row in drawn.rows] == [("100-149", "AB!CC....."), ("150-199", "xAA.......")]
    assert {owner.name: symbol for owner, symbol in drawn.symbols.items()} == {"a": "A", "b": "B", "c": "C"}
    assert [str(run) for run in drawn.free_runs] == ["121-149", "162-199"]
    assert [str(part.block) for part in drawn.conflicts] == ["110-114"]


def test_a_cell_of_several_owners() -> None:
    drawn = picture(Window(100, 119), Ledger((claim("100-101", "a"), claim("104-105", "b"))), columns=2, lines=1)
    assert ([row.cells for row in drawn.rows], drawn.ports_per_cell) == (["+."], 10)


def test_more_owners_than_letters() -> None:
    ledger = Ledger(tuple(claim(str(port), f"owner{port}") for port in range(100, 170)))
    drawn = picture(Window(100, 169), ledger, columns=70, lines=1)
    assert drawn.rows[0].cells.endswith("89########")


BLOCKS = st.lists(st.tuples(st.integers(80, 210), st.integers(1, 30)), max_size=12)


@given(layout=BLOCKS)
@settings(deadline=None, derandomize=True, database=None)
def test_segments_cover_the_window_without_gaps(layout: list[tuple[int, int]]) -> None:
    ledger = Ledger(
        tuple(claim(f"{first}-{first + length}", f"o{index}") for index, (first, length) in enumerate(layout))
    )
    drawn = picture(WINDOW, ledger, columns=10, lines=1)
    ports = [port for part in drawn.segments for port in range(part.block.first, part.block.last + 1)]
    assert list(range(100, 200)) == ports
    assert WINDOW.free_runs(each.block for each in ledger) == drawn.free_runs
    for part in drawn.segments:
        assert {each for each in ledger if each.block.overlaps(part.block)} == set(part.claims)
