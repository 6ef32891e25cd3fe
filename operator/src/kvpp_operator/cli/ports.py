"""`kvpp ports`: who owns what in the window, as a table and a picture."""

from __future__ import annotations

import io
import json
from typing import Any

from kvpp_operator.configuration import Configuration
from kvpp_operator.ledger.claim import Claim, Ledger
from kvpp_operator.ledger.picture import Picture, picture
from kvpp_operator.ledger.window import Window, kv_window
from kvpp_operator.ports import PortRange, reserved_ranges

NPUS_PER_NODE = 16
"""Of the largest node: its transport range covers that of the smaller ones."""


def window_of(configuration: Configuration) -> Window:
    listed = [PortRange.parse(ports) for ports in configuration.reserved_ports]
    chosen = configuration.kv_ports
    return kv_window(NPUS_PER_NODE, PortRange(chosen.first, chosen.last), listed)


def claim_json(claim: Claim) -> dict[str, Any]:
    holder = claim.holder
    return {
        "first": claim.block.first, "last": claim.block.last, "purpose": claim.purpose, "namespace": holder.owner.namespace,
        "name": holder.owner.name, "role": holder.role, "engine": holder.engine, "revision": holder.revision,
    }  # fmt: skip


def to_json(ledger: Ledger, window: Window) -> str:
    drawn = picture(window, ledger)
    report = {
        "window": {"first": window.first, "last": window.last, "capacity": window.capacity},
        "claims": [claim_json(claim) for claim in ledger],
        "free": [{"first": run.first, "last": run.last} for run in drawn.free_runs],
        "conflicts": [[claim_json(claim) for claim in pair] for pair in ledger.conflicts()],
    }
    return json.dumps(report, ensure_ascii=False, indent=2) + "\n"


def to_text(ledger: Ledger, window: Window) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    buffer = io.StringIO()
    console = Console(file=buffer, no_color=True, width=140, highlight=False, emoji=False)
    drawn = picture(window, ledger)
    table = Table(box=None, pad_edge=False)
    for column in ("PORTS", "PURPOSE", "DEPLOYMENT", "ROLE", "ENGINE", "REVISION", "MARK"):
        table.add_column(column)
    for claim in ledger:
        holder = claim.holder
        mark = drawn.symbols.get(holder.owner, "")
        table.add_row(
            *map(
                Text,
                (
                    str(claim.block),
                    claim.purpose,
                    str(holder.owner),
                    holder.role,
                    str(holder.engine),
                    holder.revision,
                    mark,
                ),
            )
        )
    console.print(table)
    print_window(console, window, drawn)
    for left, right in ledger.conflicts():
        console.print(Text(f"conflict: {left} and {right}"))
    return buffer.getvalue()


def print_window(console: Any, window: Window, drawn: Picture) -> None:
    from rich.text import Text

    free = sum(run.length for run in drawn.free_runs)
    longest = max((run.length for run in drawn.free_runs), default=0)
    console.print(
        Text(
            f"\nwindow {window}: {free} of {window.capacity} ports free, the longest run {longest}; a cell is {drawn.ports_per_cell} ports"
        )
    )
    for row in drawn.rows:
        console.print(Text(f"  {row.block.first:>5} {row.cells}"))
    console.print(Text("  . free   x reserved   ! conflict   + several owners"))


def node_text(
    ledger: Ledger, npus: int, configuration: Configuration, engines: list[tuple[str, str, int]] | None
) -> str:
    """One host: what is reserved there, and the claims of engines that run on it (all claims when nobody says who does)."""
    listed = [PortRange.parse(ports) for ports in configuration.reserved_ports]
    lines = ["reserved on the host:"]
    lines += [f"  {row.block!s:<13} {row.name}: {row.harm}" for row in reserved_ranges(npus, listed)]
    mine = [c for c in ledger if engines is None or (str(c.holder.owner), c.holder.role, c.holder.engine) in engines]
    lines.append("claimed:")
    lines += [
        f"  {claim.block!s:<13} {claim.purpose:<5} {claim.holder}, revision {claim.holder.revision}" for claim in mine
    ] or ["  nothing"]
    return "\n".join(lines) + "\n"
