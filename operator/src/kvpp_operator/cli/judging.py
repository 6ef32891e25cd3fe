"""Files → judged documents and plans, all planned together as one cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from pydantic import ValidationError

from kvpp_operator.cli.documents import Document, Unreadable, read
from kvpp_operator.configuration import Configuration
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.pipeline import Planned, plan_together
from kvpp_operator.plan.model import Plan
from kvpp_operator.rules import Judgement
from kvpp_operator.world import World

if TYPE_CHECKING:
    from kvpp_operator.cli.ports import Host


@dataclass(frozen=True)
class Judged:
    document: Document
    planned: Planned

    @property
    def judgement(self) -> Judgement:
        return self.planned.judgement


@dataclass(frozen=True)
class Batch:
    judged: tuple[Judged, ...]
    skipped: tuple[Document, ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def plans(self) -> tuple[Plan, ...]:
        return tuple(one.planned.plan for one in self.judged if one.planned.plan is not None)

    @property
    def ledger(self) -> Ledger:
        """What all documents claim together."""
        claims = [claim for one in self.judged if one.planned.settled for claim in one.planned.settled.claims]
        return Ledger(tuple(claims))

    @property
    def exit_code(self) -> int:
        if self.unreadable:
            return 2
        return 0 if all(one.judgement.accepted for one in self.judged) else 1


def judge_files(files: Iterable[str], config: Path | None, *, live: bool = False) -> Batch:
    configuration = configuration_from(config)
    found = list(read(files))
    documents = [item for item in found if isinstance(item, Document)]
    ours = [document for document in documents if document.is_deployment]
    bodies = [document.body for document in ours]
    planned = plan_together(bodies, configuration, live_worlds(bodies) if live else ())
    return Batch(
        judged=tuple(Judged(document, one) for document, one in zip(ours, planned, strict=True)),
        skipped=tuple(document for document in documents if not document.is_deployment),
        unreadable=tuple(item for item in found if isinstance(item, Unreadable)),
    )


def configuration_from(file: Path | None) -> Configuration:
    """The operator's configuration; a file that can't be read or is wrong ends the command with 2."""
    if file is None:
        return Configuration()
    bodies = list(read([str(file)]))
    if any(isinstance(item, Unreadable) for item in bodies) or len(bodies) > 1:
        reasons = dict.fromkeys(getattr(item, "reason", "more than one document") for item in bodies)
        usage_error(f"--config {file}: {'; '.join(reasons)}")
    body = bodies[0].body if bodies and isinstance(bodies[0], Document) else {}
    if not isinstance(body, dict):
        usage_error(f"--config {file}: a map of settings is wanted")
    try:
        return Configuration.model_validate(body)
    except ValidationError as problem:
        places = "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problem.errors())
        usage_error(f"--config {file}: {places}")


def live_worlds(bodies: Sequence[Any]) -> list[World]:
    """What the cluster holds of these deployments; a cluster that can't be read ends the command with 2."""
    from kvpp_operator.cli import live

    try:
        return live.worlds_of(bodies)
    except (live.ClusterError, live.KubeconfigError) as problem:
        usage_error(f"--live: {problem}")


def live_ports(node: str | None, configuration: Configuration) -> tuple[Ledger, Host | None]:
    """The cluster's ledger, and for a node what it is and which engines run there."""
    from kvpp_operator.cli import live

    try:
        ledger, host = live.read_ports(node, configuration)
    except (live.ClusterError, live.KubeconfigError) as problem:
        usage_error(f"the port ledger can't be read: {problem}")
    if node is not None and host is None:
        usage_error(f"there is no node {node}")
    return ledger, host


def usage_error(message: str) -> NoReturn:
    sys.stderr.write(f"kvpp: {message}\n")
    raise click.exceptions.Exit(2)
