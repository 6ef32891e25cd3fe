"""A judged batch → text for people, JSON for scripts (the contract), SARIF for CI annotations."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

from kvpp_operator.cli.documents import Unreadable
from kvpp_operator.cli.judging import Batch, Judged
from kvpp_operator.rules import RULES
from kvpp_operator.rules.base import Fact, Finding
from kvpp_operator.rules.schema_rules import UNREADABLE


def to_json(batch: Batch) -> str:
    report = {
        "documents": [
            *(document_json(one) for one in batch.judged),
            *(unreadable_json(item) for item in batch.unreadable),
        ],
        "skipped": [
            {"file": document.file, "index": document.index} | identity(document.body) for document in batch.skipped
        ],
    }
    return json.dumps(report, ensure_ascii=False, indent=2, default=str) + "\n"


def document_json(one: Judged) -> dict[str, Any]:
    return {
        "file": one.document.file,
        "index": one.document.index,
        **identity(one.document.body),
        "accepted": one.judgement.accepted,
        "findings": [finding.to_json() for finding in one.judgement.findings],
    }


def unreadable_json(item: Unreadable) -> dict[str, Any]:
    """A file that is no YAML is a document that can't be accepted."""
    findings = [finding_of(item).to_json()]
    return {"file": item.file, "index": 0, "namespace": None, "name": None, "accepted": False, "findings": findings}


def finding_of(item: Unreadable) -> Finding:
    return UNREADABLE.finding(Fact("$", None, (), {"reason": item.reason.rstrip(".")}))


class Place(NamedTuple):
    file: str
    document: int | None = None
    """Its number in the file; None is the file itself."""

    def __str__(self) -> str:
        return self.file if self.document is None else f"{self.file}[{self.document}]"


def everything(batch: Batch) -> Iterator[tuple[Place, Finding]]:
    """Every finding with the place where it was found, files that can't be read last."""
    for one in batch.judged:
        for finding in one.judgement.findings:
            yield Place(one.document.file, one.document.index), finding
    for item in batch.unreadable:
        yield Place(item.file), finding_of(item)


def number_of(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def identity(body: Any) -> dict[str, Any]:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    kind = {"kind": body.get("kind")} if isinstance(body, dict) else {"kind": None}
    named = {"namespace": metadata.get("namespace", "default"), "name": metadata.get("name")}
    return named if kind["kind"] == "KVPPDeployment" else {**kind, **named}


def to_text(batch: Batch, stream: TextIO | None = None) -> str:
    """A table of documents and every finding below; colour only on a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = stream or sys.stdout
    buffer = io.StringIO()
    terminal = stream.isatty()
    console = Console(
        file=buffer,
        force_terminal=terminal,
        no_color=not terminal,
        width=None if terminal else 160,
        highlight=False,
        emoji=False,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("DEPLOYMENT", "FILE", "VERDICT", "ERRORS", "WARNINGS"):
        table.add_column(column, overflow="fold")
    for one in batch.judged:
        errors = sum(finding.severity == "error" for finding in one.judgement.findings)
        warnings = len(one.judgement.findings) - errors
        style = "red" if errors else "green"
        who = identity(one.document.body)
        table.add_row(Text(f"{who['namespace']}/{who['name']}"), Text(f"{one.document.file}[{one.document.index}]"),
                      Text("refused" if errors else "accepted", style=style), str(errors), str(warnings))  # fmt: skip
    if batch.judged:
        console.print(table)
    for place, finding in everything(batch):
        style = "red" if finding.severity == "error" else "yellow"
        console.print(
            Text(f"\n{finding.severity} {finding.rule}", style=style), Text(f"{place} {finding.path}"), soft_wrap=True
        )
        console.print(Text(f"  {finding.message}"), soft_wrap=True)
        console.print(Text(f"  fix: {finding.fix}\n  source: {finding.source}", style="dim"), soft_wrap=True)
    total = len(batch.judged)
    refused = sum(not one.judgement.accepted for one in batch.judged)
    counts = f"{total - refused} accepted, {refused} refused, {len(batch.skipped)} skipped"
    unreadable = number_of(len(batch.unreadable), "file")
    console.print(Text(f"\n{number_of(total, 'document')}: {counts}, {unreadable} unreadable"))
    return buffer.getvalue()


def to_sarif(batch: Batch) -> str:
    """SARIF 2.1.0, the form that CI systems turn into annotations."""
    results = [
        {
            "ruleId": finding.rule,
            "level": finding.severity,
            "message": {"text": f"{finding.path}: {finding.message} Fix: {finding.fix}."},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": place.file}},
                    "logicalLocations": [{"fullyQualifiedName": finding.path}],
                }
            ],
        }
        for place, finding in everything(batch)
    ]
    used = {result["ruleId"] for result in results}
    rules = [
        {"id": rule.id, "shortDescription": {"text": rule.title}, "help": {"text": rule.source}}
        for rule in (UNREADABLE, *RULES)
        if rule.id in used
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "kvpp", "rules": rules}}, "results": results}],
    }
    return json.dumps(log, ensure_ascii=False, indent=2) + "\n"


FORMATS = {"text": to_text, "json": to_json, "sarif": to_sarif}
