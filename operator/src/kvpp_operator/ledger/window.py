"""Where blocks may lie.

    15000-17000   Mooncake's RPC                      30000-32767   NodePorts
    17001-19999   host blocks, first place            32768-60999   ephemeral, with HCCL's default 60000-60031
    20000-20800   Ascend transport of 8 NPUs          61000-65535   host blocks, third place: hosts are tuned to
                  (-21600 of 16)                                    widen the ephemeral range upwards
    20801-21999   host blocks, second place
    22000-29999   kv blocks; host blocks from the top, once their other places are full

Capacity of a cluster with these defaults and 8 NPUs a node: 8,000 kv ports; with host blocks of 19 ports about 590
engines of TP8 (9 + 19 ports each) or 750 of TP2 (3 + 19). A window elsewhere raises it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_operator.ports import LAST_PORT, PortRange, reserved_ranges, transport_range

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT = PortRange(22000, 29999)
LOW = PortRange(17001, 19999)
HIGH = PortRange(61000, LAST_PORT)


@dataclass(frozen=True, slots=True)
class Window:
    """`first` to `last`, both included, without the reserved ranges. `downward`: the top is handed out first."""

    first: int
    last: int
    reserved: tuple[PortRange, ...] = ()
    downward: bool = False

    def __post_init__(self) -> None:
        PortRange(self.first, self.last)

    @property
    def block(self) -> PortRange:
        return PortRange(self.first, self.last)

    def free_runs(self, taken: Iterable[PortRange] = ()) -> tuple[PortRange, ...]:
        """Maximal runs of ports that are neither reserved nor taken, ascending."""
        runs, free = [], self.first
        for block in sorted((*self.reserved, *taken), key=lambda block: block.first):
            if block.first > self.last:
                break
            if block.first > free:
                runs.append(PortRange(free, block.first - 1))
            free = max(free, block.last + 1)
        if free <= self.last:
            runs.append(PortRange(free, self.last))
        return tuple(runs)

    @property
    def capacity(self) -> int:
        """Ports that can be handed out at all."""
        return sum(run.length for run in self.free_runs())

    def __str__(self) -> str:
        return str(self.block)


def _forbidden(npus_per_node: int, extra: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """Name what no block may enter. NodePorts and ephemeral ports are not in it: a user may open a window there."""
    return tuple(row.block for row in reserved_ranges(npus_per_node, extra) if row.on_host == "error")


def kv_window(npus_per_node: int, window: PortRange | None = None, extra: Iterable[PortRange] = ()) -> Window:
    """Make the window of kv blocks: the user's, else 22000-29999. `extra`: ports that he lists as used by others."""
    chosen = window or DEFAULT
    return Window(chosen.first, chosen.last, _forbidden(npus_per_node, extra))


def host_windows(npus_per_node: int, extra: Iterable[PortRange] = ()) -> tuple[Window, ...]:
    """Make the windows of host blocks, in the order in which they are tried."""
    reserved = _forbidden(npus_per_node, extra)
    above_transport = transport_range(npus_per_node).last + 1
    places = [LOW, HIGH]
    if above_transport < DEFAULT.first:
        places.insert(1, PortRange(above_transport, DEFAULT.first - 1))
    overflow = Window(DEFAULT.first, DEFAULT.last, reserved, downward=True)
    return (*(Window(place.first, place.last, reserved) for place in places), overflow)
