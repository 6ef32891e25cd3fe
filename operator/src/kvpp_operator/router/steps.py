"""From what the proxy holds to what it should hold.

The proxy has traps (vllm-ascend 0.28.0rc1 to 0.30.0rc2, load_balance_proxy_server_example.py). These steps avoid them:

- started without members it invents `localhost:8001` and `localhost:8002`;
- a removal while requests run only sets the member aside: it stays in the list, is picked only when nothing else is
  left, and goes when no request runs. Until then adding it again is ignored, unless it is spelled otherwise;
- a removal of what it does not hold, followed by an addition, kills the thread that adds: so only what is listed goes;
- an addition is answered at once and done later, or given up silently: so it is said again.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpp_operator.router.members import Member
from kvpp_operator.router.spelling import plain, spellings

Members = frozenset[Member]


@dataclass(frozen=True)
class Steps:
    add: Members
    remove: Members

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


@dataclass(frozen=True)
class Held:
    """The proxy's list in its own spelling, and which of it we have removed already."""

    listed: Members
    leaving: Members = frozenset()

    @property
    def usable(self) -> Members:
        """What a new request may be sent to, as spelled."""
        return self.listed - self.leaving

    @property
    def members(self) -> Members:
        """The same in plain spelling."""
        return frozenset(map(plain, self.usable))

    def seen(self, listed: Members) -> Held:
        """After another look: who is no longer listed has left."""
        return Held(listed, self.leaving & listed)

    def removed(self, members: Members) -> Held:
        return Held(self.listed, self.leaving | (members & self.listed))


EMPTY = Held(frozenset())


def steps(wanted: Members, held: Held) -> Steps:
    """Additions get a spelling that is not listed yet; of two entries for one engine the first stays."""
    chosen = {plain(member): member for member in sorted(held.usable, reverse=True)}
    unwanted = {member for member in held.usable if plain(member) not in wanted or chosen[plain(member)] != member}
    absent = wanted - held.members
    free = ((spelled for spelled in spellings(member) if spelled not in held.listed) for member in absent)
    found = (next(spelled, None) for spelled in free)
    return Steps(add=frozenset(filter(None, found)), remove=frozenset(unwanted))


def is_in_step(wanted: Members, held: Held) -> bool:
    """Whether no request can reach anybody but the wanted, and some of them are there."""
    return bool(held.usable) and held.members <= wanted
