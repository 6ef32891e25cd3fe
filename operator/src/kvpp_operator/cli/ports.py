"""`kvpp ports`: who owns what in the window, as a table and a picture."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvpp_operator.catalogue import chips
from kvpp_operator.configuration import Configuration
from kvpp_operator.ledger.claim import Claim, Holder, Ledger
from kvpp_operator.ledger.picture import Picture, picture
from kvpp_operator.ledger.window import Window, host_windows, kv_window
from kvpp_operator.ports import PortRange, Reserved, reserved_ranges

RUNS_SHOWN = 12
WIDTH = 4096
"""Wider than any row: lines are for `grep` as well, and are never broken."""


@dataclass(frozen=True)
class Host:
    """One node. `npus` is None where nobody counted them; `holders` are the engines there, None: any may come."""

    name: str
    npus: int | None = None
    holders: frozenset[Holder] | None = None

    def has(self, claim: Claim) -> bool:
        return self.holders is None or not self.holders.isdisjoint((claim.holder, claim.holder.without_uid))


def resource_names(configuration: Configuration) -> frozenset[str]:
    """Extended resources by which nodes offer NPUs."""
    own = (chip.resource_name for chip in configuration.chips.values() if chip.resource_name)
    return frozenset((*(chip.resource_name for chip in chips.BY_NAME.values()), *own))


def most_npus(configuration: Configuration) -> int:
    """NPUs of the largest node: its transport range covers those of the smaller ones."""
    own = {name: chip.devices_per_node for name, chip in configuration.chips.items()}
    return max(own.get(name) or chip.devices_per_node for name, chip in chips.BY_NAME.items())


def listed(configuration: Configuration) -> list[PortRange]:
    return [PortRange.parse(ports) for ports in configuration.reserved_ports]


def window_of(configuration: Configuration) -> Window:
    chosen = PortRange(configuration.kv_ports.first, configuration.kv_ports.last)
    return kv_window(most_npus(configuration), chosen, listed(configuration))


def places_of(configuration: Configuration) -> tuple[Window, ...]:
    """Where host blocks go first; when these are full, to the top of the kv ports."""
    return tuple(place for place in host_windows(most_npus(configuration), listed(configuration)) if not place.downward)


def free_in(window: Window, ledger: Ledger) -> tuple[PortRange, ...]:
    return window.free_runs(claim.block for claim in ledger)


def to_json(ledger: Ledger, configuration: Configuration) -> str:
    window = window_of(configuration)
    return dumps({
        "window": window_json(window, ledger),
        "hostWindows": [window_json(place, ledger) for place in places_of(configuration)],
        "claims": [claim_json(claim) for claim in ledger],
        "free": [range_json(run) for run in free_in(window, ledger)],
        "conflicts": [[claim_json(claim) for claim in pair] for pair in ledger.conflicts()],
    })  # fmt: skip


def node_json(ledger: Ledger, configuration: Configuration, host: Host) -> str:
    return dumps({
        "node": host.name,
        "npus": host.npus,
        "reserved": [{**range_json(row.block), "name": row.name, "harm": row.harm} for row in reserved_on(host, configuration)],
        "claims": [claim_json(claim) for claim in ledger if host.has(claim)],
    })  # fmt: skip


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def range_json(block: PortRange | Window) -> dict[str, Any]:
    return {"first": block.first, "last": block.last}


def window_json(window: Window, ledger: Ledger) -> dict[str, Any]:
    free = sum(run.length for run in free_in(window, ledger))
    return {**range_json(window), "capacity": window.capacity, "free": free}


def claim_json(claim: Claim) -> dict[str, Any]:
    holder = claim.holder
    return {
        **range_json(claim.block), "purpose": claim.purpose, "namespace": holder.owner.namespace,
        "name": holder.owner.name, "role": holder.role, "engine": holder.engine, "revision": holder.revision,
    }  # fmt: skip


def to_text(ledger: Ledger, configuration: Configuration) -> str:
    window = window_of(configuration)
    drawn = picture(window, ledger)
    conflicts = [f"conflict: {left} and {right}" for left, right in ledger.conflicts()]
    lines = [*table(ledger, drawn), "", *window_lines(window, drawn)]
    return "\n".join([*lines, *places_lines(ledger, configuration), *conflicts, ""])


def table(ledger: Ledger, drawn: Picture) -> list[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for column in ("PORTS", "PURPOSE", "DEPLOYMENT", "ROLE", "ENGINE", "REVISION", "MARK"):
        shown.add_column(column)
    for claim in ledger:
        holder = claim.holder
        mark = drawn.symbols.get(holder.owner, "")
        row = (claim.block, claim.purpose, holder.owner, holder.role, holder.engine, holder.revision, mark)
        shown.add_row(*(Text(str(cell)) for cell in row))
    buffer = io.StringIO()
    Console(file=buffer, no_color=True, width=WIDTH, highlight=False, emoji=False).print(shown)
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


def window_lines(window: Window, drawn: Picture) -> list[str]:
    free = sum(run.length for run in drawn.free_runs)
    longest = sorted(drawn.free_runs, key=lambda run: (-run.length, run.first))[:RUNS_SHOWN]
    more = len(drawn.free_runs) - len(longest)
    runs = ", ".join(f"{run} ({run.length})" for run in longest) or "nothing"
    return [
        f"window {window}: {free} of {window.capacity} ports free; a cell is {drawn.ports_per_cell} ports",
        *(f"  {row.block.first:>5} {row.cells}" for row in drawn.rows),
        "  . free   x reserved   ! conflict   + several owners",
        f"free runs, the longest first: {runs}{f' and {more} more' if more else ''}",
    ]


def places_lines(ledger: Ledger, configuration: Configuration) -> Iterable[str]:
    for place in places_of(configuration):
        free = sum(run.length for run in free_in(place, ledger))
        yield f"host blocks {place}: {free} of {place.capacity} ports free"


def reserved_on(host: Host, configuration: Configuration) -> tuple[Reserved, ...]:
    return reserved_ranges(host.npus or most_npus(configuration), listed(configuration))


def node_text(ledger: Ledger, configuration: Configuration, host: Host) -> str:
    """One host: what is reserved there, and the claims of engines that run on it."""
    claims = [
        f"  {c.block!s:<13} {c.purpose:<5} {c.holder}, revision {c.holder.revision}" for c in ledger if host.has(c)
    ]
    lines = [
        f"reserved on {host.name} ({host.npus or f'at most {most_npus(configuration)}'} NPUs):",
        *(f"  {row.block!s:<13} {row.name}: {row.harm}" for row in reserved_on(host, configuration)),
        "claimed by engines there:" if host.holders is not None else "claimed, wherever the engines run:",
        *(claims or ["  nothing"]),
    ]
    return "\n".join([*lines, ""])
