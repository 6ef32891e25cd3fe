"""The generated pages say all that there is, and links in written ones lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvpp_operator.catalogue.chips import CHIPS
from kvpp_operator.catalogue.models import PROFILES
from kvpp_operator.crd.definition import root_schema
from kvpp_operator.docs.api import SHARED, api_page
from kvpp_operator.docs.catalogue import chips_page, models_page
from kvpp_operator.docs.codes import engine_codes
from kvpp_operator.docs.runbook import anchor, runbook, title
from kvpp_operator.report.codes import CODES
from kvpp_operator.report.reasons import REASONS

ROOT = Path(__file__).parents[2]
WRITTEN = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "charts").rglob("*.md"),
        *(ROOT / "devcluster").glob("*.md"),
    ]
)
PAGES = {"api": api_page, "models": models_page, "chips": chips_page, "runbook": runbook, "engine-codes": engine_codes}


def leaves(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    inner = schema.get("items") or schema.get("additionalProperties")
    inner = inner if isinstance(inner, dict) else schema
    properties = {**schema.get("properties", {}), **inner.get("properties", {})}
    if not properties:
        yield path
    for name, node in properties.items():
        yield from leaves(node, (*path, name))


def test_every_field_of_the_schema_has_a_row() -> None:
    """Fields of a shared group stand under the group's name, so the end of a path is looked for."""
    rows = {cell.replace("[]", "").replace(".*", "") for cell in re.findall(r"^\| `([^`]+)`", api_page(), re.MULTILINE)}
    names = {shared.name for shared in SHARED} | {"prefill", "unified", "decode", "draftModel"}
    missing = []
    for part in ("spec", "status"):
        for path in leaves(root_schema()["properties"][part], (part,)):
            shared = [index for index, step in enumerate(path) if step in names]
            ends = {".".join(path), *(".".join(path[index + 1 :]) for index in shared)}
            ends |= {
                ".".join(("source" if path[index] == "draftModel" else path[index], *path[index + 1 :]))
                for index in shared
            }
            if not ends & rows:
                missing.append(".".join(path))
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_rectangular(page: str) -> None:
    """A bar in a cell would shift the columns."""
    width = 0
    for line in PAGES[page]().splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line))
            assert width in (0, cells), line
            width = cells
        else:
            width = 0


def test_every_reason_is_explained_once() -> None:
    headings = re.findall(r"^### (.+)$", runbook(), re.MULTILINE)
    assert sorted(headings) == sorted(title(reason) for reason in REASONS)
    assert len({anchor(reason) for reason in REASONS}) == len(REASONS)


def test_every_known_failure_has_the_heading_that_status_names() -> None:
    headings = re.findall(r"^### (.+)$", engine_codes(), re.MULTILINE)
    assert sorted(headings) == sorted(code.name for code in CODES)


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_current(page: str) -> None:
    """Stale: run `make generate`."""
    assert (ROOT / "docs" / f"{page}.md").read_text("utf-8") == PAGES[page]()


def test_every_model_and_chip_is_listed() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", models_page(), re.MULTILINE)
    assert sorted(listed) == sorted(model.name for model in PROFILES)
    assert [line.removeprefix("## ") for line in chips_page().splitlines() if line.startswith("## ")] == [
        chip.name for chip in CHIPS
    ]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", target)]
    broken = []
    for target in targets:
        file, _, fragment = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        if not found.exists() or (fragment and fragment not in anchors(found)):
            broken.append(target)
    assert broken == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    kept = (
        "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_") for heading in headings
    )
    return {heading.replace(" ", "-") for heading in kept}
