"""`kvpp preflight`: one Job a node, one table."""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import sys
from collections.abc import Iterator, Sequence

from kvpp_operator.cli.judging import Batch, usage_error
from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import KubeconfigError, load
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.pipeline import wished_of
from kvpp_operator.preflight.job import Target, targets
from kvpp_operator.preflight.run import Answer, preflight

WIDTH = 4096
"""Wider than any row: lines are for `grep` as well, and are never broken."""


def ask(batch: Batch, nodes: Sequence[str], *, npus: int, seconds: int) -> list[Answer]:
    """Run the Jobs; a cluster that can't be asked, or has no such nodes, ends the command with 2."""
    tried = targets_of(batch)
    if not tried:
        usage_error("there is no engine to try: no document is a KVPPDeployment with replicas")

    async def run() -> list[Answer]:
        async with Cluster(Access(load)) as cluster:
            return await preflight(
                cluster, tried, nodes, secrets.token_hex(4), npus=npus, seconds=seconds, started=say_so
            )

    try:
        answers = asyncio.run(run())
    except (ClusterError, KubeconfigError) as problem:
        usage_error(f"the cluster can't be asked: {problem}")
    except LookupError as problem:
        usage_error(str(problem))
    if not answers:
        wanted = ", ".join(sorted({target.resource for target in tried}))
        usage_error(f"no node offers {wanted}")
    return answers


def say_so(jobs: int) -> None:
    sys.stderr.write(f"{jobs} Jobs are looking; Ctrl-C takes them away\n")


def targets_of(batch: Batch) -> list[Target]:
    """Every role that has engines."""
    found: list[Target] = []
    for one in batch.judged:
        plan = one.planned.plan
        if plan is not None:
            roles: dict[str, str] = {role.name: role.resolved.accelerator.resource_name for role in plan.roles}
            found += targets(wished_of(one.planned), roles)
    return found


def to_json(answers: Sequence[Answer]) -> str:
    listed = [
        {
            "node": answer.node,
            "namespace": answer.target.namespace,
            "deployment": answer.target.deployment,
            "role": answer.target.role,
            "ok": not answer.has_errors,
            "results": [result._asdict() for result in answer.results],
        }
        for answer in answers
    ]
    return json.dumps({"nodes": listed}, ensure_ascii=False, indent=2) + "\n"


def to_text(answers: Sequence[Answer]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for column in ("NODE", "DEPLOYMENT", "ROLE", "STATE", "WHAT", "FIX"):
        shown.add_column(column)
    for answer in answers:
        for state, what, fix in rows(answer):
            cells = (answer.node, answer.target.deployment, answer.target.role, state, what, fix)
            shown.add_row(*map(Text, cells))
    buffer = io.StringIO()
    Console(file=buffer, no_color=True, width=WIDTH, highlight=False, emoji=False).print(shown)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def rows(answer: Answer) -> Iterator[tuple[str, str, str]]:
    """A line for each trouble; a node without any has one that says what there is."""
    troubles = [result for result in answer.results if result.state != "ok"]
    yield from ((result.state, f"{result.check}: {result.found}", result.fix) for result in troubles)
    if not troubles:
        yield "ok", ", ".join(f"{result.check} {result.found}" for result in answer.results), ""
