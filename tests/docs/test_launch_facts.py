"""Whoever reads "launch facts 1.2 rule 4" anywhere finds that row in docs/launch-facts.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvpp_operator.catalogue.chips import CHIPS
from kvpp_operator.catalogue.models import PROFILES
from kvpp_operator.ports import RESERVED
from kvpp_operator.report.codes import CODES
from kvpp_operator.rules import RULES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/launch-facts.md"
FOLDERS = ("operator", "conformance", "devcluster", "images", "tests", "docs", "charts")
ENDINGS = {".py", ".md", ".in", ".yaml", ".tpl"}

POINT = r"(\d+(?:\.\d+)?)(?: rules? (\d+(?![.\d])(?:(?:, | and )\d+(?![.\d]))*)|,? \(([^()]+)\)|, row ([^,:;.()]+?)(?=[,:;.)]|$))?"
CITATION = re.compile(rf"[Ll]aunch facts {POINT}(?:(?:, and |, | and | to ){POINT})*")

SOURCES: dict[str, str] = {
    **{rule.id: rule.source for rule in RULES},
    **{code.name: code.source for code in CODES},
    **{model.name: model.source for model in PROFILES},
    **{str(chip.name): chip.source for chip in CHIPS},
    **{reserved.name: reserved.source for reserved in RESERVED},
}


def cited(text: str) -> Iterator[tuple[str, str]]:
    """(number of the section, name of the row or "") of each citation in a text."""
    for citation in CITATION.finditer(" ".join(text.replace('"', " ").replace("#", " ").split())):
        for number, rules, remark, row in re.findall(POINT, citation.group()):
            names = [f"rule {rule}" for rule in re.findall(r"\d+", rules)] or [remark or row]
            yield from ((number, name.casefold()) for name in names)


def facts() -> dict[str, set[str]]:
    """Number of each section → its rows by their first cell, and "" for the section itself."""
    found: dict[str, set[str]] = {}
    number = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if heading := re.match(r"#+ (\d+(?:\.\d+)?) ", line):
            number = heading[1]
            assert number not in found, number
            found[number] = {""}
        elif row := re.match(r"\| ([^|]+) \|", line):
            found.setdefault(number, {""}).add(row[1].casefold())
    return found


def missing(text: str) -> list[tuple[str, str]]:
    known = facts()
    return [(number, row) for number, row in cited(text) if row not in known.get(number, set())]


CITATIONS = {
    "launch facts 1.2 rules 1 and 3, 1.5: types": [("1.2", "rule 1"), ("1.2", "rule 3"), ("1.5", "")],
    "launch facts 1.3, row Mooncake layerwise, and 11.1 (Pools): no": [
        ("1.3", "mooncake layerwise"),
        ("11.1", "pools"),
    ],
    "launch facts 1.2 rule 20 and 11.1 (Runner): V1": [("1.2", "rule 20"), ("11.1", "runner")],
    "8.2 (launch facts 8.2 to 8.4).": [("8.2", ""), ("8.4", "")],
    "the launch facts": [],
}


@pytest.mark.parametrize("text", CITATIONS)
def test_citations_are_read(text: str) -> None:
    assert list(cited(text)) == CITATIONS[text]


def test_a_wrong_number_is_found() -> None:
    assert missing("launch facts 1.2 rules 4 and 99; launch facts 77.1; launch facts 11.1 (Nobody)") == [
        ("1.2", "rule 99"),
        ("77.1", ""),
        ("11.1", "nobody"),
    ]


@pytest.mark.parametrize("name", SOURCES)
def test_sources_are_on_the_page(name: str) -> None:
    assert missing(SOURCES[name]) == []


@pytest.mark.parametrize("name", SOURCES)
def test_sources_can_be_followed(name: str) -> None:
    """No number without the name of its page, no page that is not here, and one word for each."""
    assert not re.search(r"(?<![Ll]aunch )[Ff]acts \d|(?:^|; )(?:[1-9]\d?\.\d|design\b|reference\b)", SOURCES[name])
    pages = re.findall(r"\b(?:docs/)?[\w-]+\.md\b", SOURCES[name])
    assert [page for page in pages if page != "pipeline_parallel.md" and not (ROOT / page).exists()] == []


def test_citations_in_files_are_on_the_page() -> None:
    """Comments and pages, generated ones too."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in ENDINGS]
    texts = {path: path.read_text("utf-8") for path in [*files, *ROOT.glob("*.md")] if path != Path(__file__)}
    wrong = {str(path.relative_to(ROOT)): gone for path, text in texts.items() if (gone := missing(text))}
    assert wrong == {}


def test_every_number_is_cited() -> None:
    """What nobody cites is left out, so that the page stays short."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    known = {(number, row) for number, rows in facts().items() for row in rows if not row or row.startswith("rule ")}
    used = {citation for path in files for citation in cited(path.read_text("utf-8"))}
    used |= {(number, "") for number, _row in used} | {(number.partition(".")[0], "") for number, _row in used}
    assert sorted(known - used - {("", "")}) == []
