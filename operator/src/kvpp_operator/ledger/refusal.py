"""Why claims could not be given, with the numbers that a user needs to act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_operator.ports import LAST_PORT, PortRange

if TYPE_CHECKING:
    from kvpp_operator.ledger.claim import Claim, Holder, Owner
    from kvpp_operator.ledger.pins import PinVerdict
    from kvpp_operator.ledger.window import Window


MOST_NAMED = 4
"""Reserved ranges that a message names."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No run of the windows is long enough. Numbers are ports, as they were before anything was given."""

    purpose: str
    roles: tuple[str, ...]
    windows: tuple[Window, ...]
    lengths: tuple[int, ...]
    free: int
    longest: int
    top: tuple[Owner, int] | None

    @property
    def needed(self) -> int:
        return sum(self.lengths)

    @property
    def message(self) -> str:
        places = ", ".join(map(str, self.windows))
        blocks = "1 block" if len(self.lengths) == 1 else f"{len(self.lengths)} blocks, the longest {self.lengths[0]}"
        top = f"{self.top[0]} holds most of it: {self.top[1]} ports" if self.top else "nobody holds a port of it"
        kept = [str(block) for window in self.windows for block in window.reserved if block.overlaps(window.block)]
        top += f"; reserved for others: {', '.join(kept[:MOST_NAMED])}" if kept else ""
        return (
            f"{self.purpose} ports of {' and '.join(self.roles)}: {self.needed} needed ({blocks}), but {places} has "
            f"{self.free} free, the longest run {self.longest}; {top}"
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """A pinned block meets a claim."""

    holder: Holder
    block: PortRange
    pin: int
    other: Claim

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.holder.role,)

    @property
    def message(self) -> str:
        ports = f"{self.block} ({self.block.length} ports, pin {self.pin})"
        other = f"{self.other.holder} holds {self.other.block}"
        text = f"{self.holder.role} engine {self.holder.engine} needs {ports}, but {other}"
        if self.other.holder.owner == self.holder.owner and self.other.holder.revision != self.holder.revision:
            text += f" for revision {self.other.holder.revision} until its pods are gone: a pinned role can't surge"
        return text


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A pinned block lies where it would clash on a host."""

    holder: Holder
    verdict: PinVerdict

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.holder.role,)

    @property
    def message(self) -> str:
        return f"{self.holder.role} engine {self.holder.engine}: {self.verdict.message}"


@dataclass(frozen=True, slots=True)
class PastEnd:
    """A pinned block would pass the last port."""

    holder: Holder
    first: int
    length: int

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.holder.role,)

    @property
    def message(self) -> str:
        return (
            f"{self.holder.role} engine {self.holder.engine}: {self.length} ports from {self.first} "
            f"would pass {LAST_PORT}; a lower pin is needed"
        )


Problem = Exhausted | Taken | Forbidden | PastEnd


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was given; every reason at once."""

    problems: tuple[Problem, ...]

    @property
    def message(self) -> str:
        return "; ".join(problem.message for problem in self.problems)
