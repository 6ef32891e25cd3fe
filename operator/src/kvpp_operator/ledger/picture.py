"""A window seen from above: who owns what, what is free, where claims overlap. Values only; the CLI prints them."""

from __future__ import annotations

import string
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from kvpp_operator.ports import PortRange

if TYPE_CHECKING:
    from kvpp_operator.ledger.claim import Claim, Ledger, Owner
    from kvpp_operator.ledger.window import Window

Use = Literal["free", "reserved", "claimed", "conflict"]

SYMBOLS = string.ascii_uppercase + string.ascii_lowercase + string.digits
FREE, RESERVED, CONFLICT, MIXED, NO_SYMBOL = ".", "x", "!", "+", "#"


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of ports with one use. `claims`: its owners; two or more only in a conflict."""

    block: PortRange
    use: Use
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture: `cells` has a symbol for each `ports_per_cell` ports of `block`."""

    block: PortRange
    cells: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`segments` cover the window without gaps, ascending. `symbols`: the letter of each owner in `rows`."""

    segments: tuple[Segment, ...]
    symbols: dict[Owner, str]
    rows: tuple[Row, ...]
    ports_per_cell: int

    @property
    def free_runs(self) -> tuple[PortRange, ...]:
        return tuple(segment.block for segment in self.segments if segment.use == "free")

    @property
    def conflicts(self) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment.use == "conflict")


def picture(window: Window, ledger: Ledger, *, columns: int = 100, lines: int = 8) -> Picture:
    """Draw a window: at most `lines` rows of `columns` cells (or a row more), a whole number of ports in each cell."""
    segments = _segments(window, ledger)
    owners = dict.fromkeys(claim.holder.owner for segment in segments for claim in segment.claims)
    symbols = {owner: SYMBOLS[index] if index < len(SYMBOLS) else NO_SYMBOL for index, owner in enumerate(owners)}
    per_cell = -(-window.block.length // (columns * lines))
    cells = _cells(window, segments, symbols, per_cell)
    rows = []
    for start in range(0, len(cells), columns):
        first = window.first + start * per_cell
        last = min(first + columns * per_cell - 1, window.last)
        rows.append(Row(PortRange(first, last), cells[start : start + columns]))
    return Picture(segments, symbols, tuple(rows), per_cell)


def _segments(window: Window, ledger: Ledger) -> tuple[Segment, ...]:
    """Cut the window wherever a claim or a reserved range begins or ends, and say of each piece what it is."""
    claims = [claim for claim in ledger if claim.block.overlaps(window.block)]
    cuts = {window.first, window.last + 1}
    for block in (*(claim.block for claim in claims), *window.reserved):
        cuts |= {port for port in (block.first, block.last + 1) if window.first < port <= window.last}
    edges = sorted(cuts)
    segments: list[Segment] = []
    for first, after in pairwise(edges):
        while claims and claims[0].block.last < first:
            claims.pop(0)
        owners = tuple(claim for claim in claims if first in claim.block)
        use: Use = "free"
        if owners:
            use = "claimed" if len(owners) == 1 else "conflict"
        elif any(first in block for block in window.reserved):
            use = "reserved"
        last = segments[-1] if segments else None
        if last and (last.use, last.claims) == (use, owners):
            segments[-1] = Segment(PortRange(last.block.first, after - 1), use, owners)
        else:
            segments.append(Segment(PortRange(first, after - 1), use, owners))
    return tuple(segments)


def _cells(window: Window, segments: tuple[Segment, ...], symbols: dict[Owner, str], per_cell: int) -> str:
    """Give each cell the worst of what it covers: a conflict, owners, reserved, free."""
    seen: list[set[str]] = [set() for _ in range(0, window.block.length, per_cell)]
    for segment in segments:
        marks = {
            "free": {FREE}, "reserved": {RESERVED}, "conflict": {CONFLICT},
            "claimed": {symbols[claim.holder.owner] for claim in segment.claims},
        }[segment.use]  # fmt: skip
        first, last = (port - window.first for port in (segment.block.first, segment.block.last))
        for cell in range(first // per_cell, last // per_cell + 1):
            seen[cell] |= marks
    return "".join(map(_symbol, seen))


def _symbol(marks: set[str]) -> str:
    owners = marks - {FREE, RESERVED, CONFLICT}
    if CONFLICT in marks:
        return CONFLICT
    if owners:
        return owners.pop() if len(owners) == 1 else MIXED
    return RESERVED if RESERVED in marks else FREE
