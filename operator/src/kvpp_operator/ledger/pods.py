"""The pod network: no claims. Addresses differ, so all engines of a role share one block and nothing ever conflicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_operator.ports import LAST_PORT, PortRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvpp_operator.ledger.window import Window


@dataclass(frozen=True, slots=True)
class RoleBlock:
    """Length of a role's kv block, and its start if the user pinned it."""

    length: int
    pin: int | None = None


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A role whose block fits nowhere in the window, or whose pin would pass the last port."""

    role: str
    length: int
    window: Window
    longest: int
    pin: int | None = None

    @property
    def message(self) -> str:
        if self.pin is not None:
            return f"{self.role}: {self.length} ports from the pin {self.pin} would pass {LAST_PORT}"
        return f"{self.role}: needs a run of {self.length} ports; the longest of window {self.window} is {self.longest}"


def pod_network_blocks(roles: Mapping[str, RoleBlock], window: Window) -> dict[str, PortRange] | NoRoom:
    """Choose the block of each role: a pin is its start, the others take the lowest room that no other role has.

    Replicas play no part, so scaling moves nothing. Pins may stand anywhere, in each other too: it is the user's wish,
    and harmless where every pod has its own address.
    """
    blocks: dict[str, PortRange] = {}
    for role, wanted in sorted(roles.items(), key=lambda item: item[1].pin is None):
        if wanted.pin is not None:
            if wanted.pin + wanted.length - 1 > LAST_PORT:
                return NoRoom(role, wanted.length, window, 0, wanted.pin)
            blocks[role] = PortRange.of(wanted.pin, wanted.length)
            continue
        runs = window.free_runs(blocks.values())
        first = next((run.first for run in runs if run.length >= wanted.length), None)
        if first is None:
            return NoRoom(role, wanted.length, window, max((run.length for run in runs), default=0))
        blocks[role] = PortRange.of(first, wanted.length)
    return {role: blocks[role] for role in roles}
