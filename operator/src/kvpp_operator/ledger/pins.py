"""Pins: the start of a role's first block, chosen by the user. Replica i takes the i-th block from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvpp_operator.ports import PortRange, Reserved, Severity


@dataclass(frozen=True, slots=True)
class PinVerdict:
    """A pinned block that lies where others put ports."""

    severity: Severity
    block: PortRange
    reserved: Reserved

    @property
    def message(self) -> str:
        return f"{self.block} meets {self.reserved.block} ({self.reserved.name}): {self.reserved.harm}"


def judge_pin(block: PortRange, reserved: Iterable[Reserved], *, host_network: bool) -> tuple[PinVerdict, ...]:
    """Say what speaks against a pinned block: an error where it would clash on a host, else a warning."""
    met = (row for row in reserved if block.overlaps(row.block))
    return tuple(PinVerdict(row.on_host if host_network else row.on_pods, block, row) for row in met)
