"""docs/engine-codes.md: known failures of engines by phase; status links to its headings."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.docs.table import code as quoted
from kvpp_operator.docs.table import table
from kvpp_operator.report.codes import CODES, PHASES, Code

HEAD = """# Known failures of engines

What the operator recognises in the words of a pod, an event or an engine's last lines. `status.engines[].reason` then ends with
the phase, a hint and the name of an entry here. `make generate` writes this page from `report/codes.py`; do not edit it.

The first entry that matches is taken. What is not recognised is shown in its own words, without a hint.
"""


def engine_codes() -> str:
    rows = ((phase, meaning, ", ".join(link(code) for code in of_phase(phase)) or "none") for phase, meaning in PHASES)
    lines = [HEAD, *table("phase | what happens | known failures", rows), ""]
    for phase, _ in PHASES:
        if codes := of_phase(phase):
            lines += [f"## Phase: {phase}", "", *(line for code in codes for line in entry(code))]
    return "\n".join(lines)


def of_phase(phase: str) -> list[Code]:
    return [code for code in CODES if code.phase == phase]


def link(code: Code) -> str:
    return f"[{code.name}](#{code.name})"


def entry(code: Code) -> Iterator[str]:
    """One heading, named exactly like the code: status refers to it."""
    yield from (f"### {code.name}", "", code.meaning, "", f"**What to do.** {code.remedy}", "")
    yield from (f"Recognised by {quoted(code.pattern)}. Source: {code.source}.", "")
