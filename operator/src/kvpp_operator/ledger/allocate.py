"""Give blocks to engines that have none: the one place where a port is chosen.

Blocks go to the *smallest* free run that is long enough (the lowest of equals). Measured with the lengths of TP1 to
TP16 with PP2 coming and going in a window filled to 90 % (`tests/bench/ledger_speed.py`): no request was refused and
the longest free run stayed near 160 ports; with the lowest run that fits one request in thirteen was, and 31 were left.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_operator.ledger.claim import Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.pins import PinVerdict, judge_pin
from kvpp_operator.ledger.refusal import Exhausted, Forbidden, PastEnd, Problem, Refusal, Taken
from kvpp_operator.ports import LAST_PORT, PortRange, Reserved

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kvpp_operator.ledger.window import Window


@dataclass(frozen=True, slots=True)
class Request:
    """`length` ports for a holder and purpose, from the first window that has them. `pin`: the role's, if any."""

    holder: Holder
    purpose: str
    length: int
    windows: tuple[Window, ...]
    pin: int | None = None

    @property
    def pinned_first(self) -> int | None:
        """Where the pin puts this replica: blocks stand one behind the other."""
        return None if self.pin is None else self.pin + self.holder.engine * self.length


@dataclass(frozen=True, slots=True)
class Allocation:
    """`claims` answer the requests in their order. `unmoved`: claims that stay although the pin now says otherwise."""

    ledger: Ledger
    claims: tuple[Claim, ...]
    warnings: tuple[PinVerdict, ...] = ()
    unmoved: tuple[Claim, ...] = ()


class _Room:
    """What is left while a batch is being served: free runs of each window, cut as blocks are given."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.claims = list(claims)
        self._runs: dict[Window, list[PortRange]] = {}

    def runs(self, window: Window) -> list[PortRange]:
        if window not in self._runs:
            self._runs[window] = list(window.free_runs(claim.block for claim in self.claims))
        return self._runs[window]

    def fit(self, window: Window, length: int) -> PortRange | None:
        fitting = [run for run in self.runs(window) if run.length >= length]
        if not fitting:
            return None
        if window.downward:
            run = min(fitting, key=lambda run: (run.length, -run.first))
            return PortRange(run.last - length + 1, run.last)
        run = min(fitting, key=lambda run: (run.length, run.first))
        return PortRange.of(run.first, length)

    def take(self, claim: Claim) -> Claim:
        self.claims.append(claim)
        for window, runs in self._runs.items():
            self._runs[window] = [piece for run in runs for piece in _without(run, claim.block)]
        return claim


def _without(run: PortRange, block: PortRange) -> list[PortRange]:
    if not run.overlaps(block):
        return [run]
    pieces = []
    if run.first < block.first:
        pieces.append(PortRange(run.first, block.first - 1))
    if block.last < run.last:
        pieces.append(PortRange(block.last + 1, run.last))
    return pieces


def allocate(
    ledger: Ledger,
    requests: Sequence[Request],
    *,
    reserved: tuple[Reserved, ...] = (),
    running: Collection[Holder] = (),
) -> Allocation | Refusal:
    """Give claims for all requests, or none and every reason. Same ledger, same requests: same answer.

    A claim that a holder already has is returned as it is, so a restart or a retry changes nothing. Only one whose
    length is wrong (edited by hand) is given anew, and never under a `running` holder. `reserved` judges pins.
    """
    kept, stale = _existing(ledger, requests, running)
    room = _Room(claim for claim in ledger if claim not in stale)
    missing = [request for request in requests if (request.holder, request.purpose) not in kept]
    given, warnings, problems = _pinned(room, [request for request in missing if request.pin is not None], reserved)
    chosen, exhausted = _chosen(room, [request for request in missing if request.pin is None])
    if problems or exhausted:
        return Refusal((*problems, *exhausted))
    answers = kept | {claim.key: claim for claim in (*given, *chosen)}
    claims = tuple(answers[request.holder, request.purpose] for request in requests)
    asked = zip(requests, claims, strict=True)
    unmoved = tuple(claim for request, claim in asked if request.pinned_first not in (None, claim.block.first))
    return Allocation(Ledger(tuple(room.claims)), claims, warnings, unmoved)


def _existing(
    ledger: Ledger, requests: Sequence[Request], running: Collection[Holder]
) -> tuple[dict[tuple[Holder, str], Claim], set[Claim]]:
    """Part the claims of requested keys: those that answer a request as they are, and those that don't."""
    lengths = {(request.holder, request.purpose): request.length for request in requests}
    kept: dict[tuple[Holder, str], Claim] = {}
    stale: set[Claim] = set()
    for claim in ledger:
        if claim.key not in lengths:
            continue
        if claim.key not in kept and (claim.block.length == lengths[claim.key] or claim.holder in running):
            kept[claim.key] = claim
        elif claim.holder not in running:
            stale.add(claim)
    return kept, stale


def _pinned(
    room: _Room, requests: Sequence[Request], reserved: tuple[Reserved, ...]
) -> tuple[list[Claim], tuple[PinVerdict, ...], list[Problem]]:
    given: list[Claim] = []
    warnings: list[PinVerdict] = []
    problems: list[Problem] = []
    for request in requests:
        first, pin = request.pinned_first, request.pin
        if first is None or pin is None:
            continue
        if first + request.length - 1 > LAST_PORT:
            problems.append(PastEnd(request.holder, first, request.length))
            continue
        block = PortRange.of(first, request.length)
        verdicts = judge_pin(block, reserved, host_network=True)
        warnings += [verdict for verdict in verdicts if verdict.severity == "warning"]
        problems += [Forbidden(request.holder, verdict) for verdict in verdicts if verdict.severity == "error"]
        problems += [Taken(request.holder, block, pin, claim) for claim in room.claims if claim.block.overlaps(block)]
        given.append(room.take(Claim(block, request.holder, request.purpose)))
    return given, tuple(warnings), problems


def _turn(request: Request) -> tuple[int, int, Holder, str]:
    return len(request.windows), -request.length, request.holder, request.purpose


def _chosen(room: _Room, requests: Sequence[Request]) -> tuple[list[Claim], list[Exhausted]]:
    """Fewest windows first (they have no other place to go), then longest first (they fit the fewest runs)."""
    before = Ledger(tuple(room.claims))
    given: list[Claim] = []
    failed: dict[tuple[str, tuple[Window, ...]], None] = {}
    for request in sorted(requests, key=_turn):
        blocks = (block for window in request.windows if (block := room.fit(window, request.length)))
        if block := next(blocks, None):
            given.append(room.take(Claim(block, request.holder, request.purpose)))
        else:
            failed[request.purpose, request.windows] = None
    return given, [_exhausted(before, requests, purpose, windows) for purpose, windows in failed]


def _exhausted(before: Ledger, requests: Sequence[Request], purpose: str, windows: tuple[Window, ...]) -> Exhausted:
    same = [request for request in requests if (request.purpose, request.windows) == (purpose, windows)]
    runs = [run.length for window in windows for run in window.free_runs(claim.block for claim in before)]
    held = Counter[Owner]()
    for claim in before:
        if any(claim.block.overlaps(window.block) for window in windows):
            held[claim.holder.owner] += claim.block.length
    owners = sorted((-ports, owner) for owner, ports in held.items())
    top = (owners[0][1], -owners[0][0]) if owners else None
    roles = tuple(dict.fromkeys(request.holder.role for request in same))
    lengths = tuple(sorted((request.length for request in same), reverse=True))
    return Exhausted(purpose, roles, windows, lengths, sum(runs), max(runs, default=0), top)
