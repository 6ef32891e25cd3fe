"""Tables in Markdown, as the generated pages use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def table(head: str, rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Lines of a table. `head` names the columns with ` | ` in between."""
    columns = head.split(" | ")
    return [
        f"| {head} |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(cell(text) for text in row) + " |" for row in rows),
    ]


def cell(text: str) -> str:
    """Escape what would end a cell, a bar, or a row, a line break."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`"
