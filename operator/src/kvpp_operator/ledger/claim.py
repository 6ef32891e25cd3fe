"""Claims and the ledger that holds them: values.

The small ones are named tuples because a turn hashes and compares them by the thousand: a frozen dataclass is five
times slower at both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvpp_operator.ports import PortRange

ENGINE_ROLES = ("unified", "prefill", "decode")
KV, HOST = "kv", "host"
"""Purposes. Others, written by a newer operator, are kept as they are."""


class Owner(NamedTuple):
    """A deployment; the uid tells it from one of the same name that was deleted."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Holder(NamedTuple):
    """One engine of one revision. Router and pool services hold ports too; `role` is then their name."""

    owner: Owner
    role: str
    engine: int
    revision: str

    @property
    def without_uid(self) -> Holder:
        """What a pod's labels tell."""
        return Holder(Owner(self.owner.namespace, self.owner.name, ""), self.role, self.engine, self.revision)

    def __str__(self) -> str:
        what = f"{self.role} engine {self.engine}" if self.role in ENGINE_ROLES else self.role
        return f"{what} of {self.owner}"


class Claim(NamedTuple):
    """`holder` owns the ports of `block`, on every host."""

    block: PortRange
    holder: Holder
    purpose: str

    @property
    def key(self) -> tuple[Holder, str]:
        """What is unique: a holder has one block for each purpose."""
        return self.holder, self.purpose

    def __str__(self) -> str:
        return f"{self.block} ({self.purpose}, {self.holder}, revision {self.holder.revision})"


def _order(claim: Claim) -> tuple[int, int, Holder, str]:
    return claim.block.first, claim.block.last, claim.holder, claim.purpose


@dataclass(frozen=True, slots=True)
class Ledger:
    """Claims, each once, in the order of their blocks. It may hold overlapping ones: it says what is."""

    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", tuple(sorted(set(self.claims), key=_order)))

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def ports(self) -> int:
        return sum(claim.block.length for claim in self.claims)

    def find(self, holder: Holder, purpose: str) -> Claim | None:
        """Find the holder's claim for that purpose; the lowest, should the ledger hold several."""
        return next((claim for claim in self.claims if claim.key == (holder, purpose)), None)

    def add(self, claims: Iterable[Claim]) -> Ledger:
        return Ledger((*self.claims, *claims))

    def conflicts(self) -> tuple[tuple[Claim, Claim], ...]:
        """List every pair of claims with a port in common."""
        pairs: list[tuple[Claim, Claim]] = []
        open_claims: list[Claim] = []
        for claim in self.claims:
            open_claims = [earlier for earlier in open_claims if earlier.block.last >= claim.block.first]
            pairs += [(earlier, claim) for earlier in open_claims]
            open_claims.append(claim)
        return tuple(pairs)

    def is_sound(self) -> bool:
        """Say whether no two claims overlap and no holder has two blocks for one purpose."""
        apart = all(left.block.last < right.block.first for left, right in pairwise(self.claims))
        return apart and len({claim.key for claim in self.claims}) == len(self.claims)

    def holds(self, claims: Iterable[Claim]) -> bool:
        """Say whether all of these stand here and overlap nothing: the last look before an engine is applied."""
        wanted = set(claims)
        if not wanted <= set(self.claims):
            return False
        return not any(left in wanted or right in wanted for left, right in self.conflicts())
