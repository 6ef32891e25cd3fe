"""The commands. Imports stand inside them where they cost time: `kvpp validate` must start like a small tool."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvpp_operator.cli.judging import Batch

app = typer.Typer(
    name="kvpp",
    help="Validated vLLM Ascend deployments with KV pipeline parallelism.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Files = Annotated[list[str], typer.Argument(metavar="FILE|DIR|-…", help="Files, folders or - for stdin.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The operator's configuration, as in its ConfigMap.")
]


class ReportFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


class ManifestFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


class TextFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@app.command()
def validate(
    files: Files,
    output: Annotated[ReportFormat, typer.Option("-o", "--output", help="Form of the report.")] = ReportFormat.TEXT,
    config: ConfigFile = None,
    live: Annotated[bool, typer.Option("--live", help="Read port ledger and cluster (KUBECONFIG).")] = False,
) -> None:
    """Judge every document: 0 nothing worse than warnings, 1 errors, 2 unreadable input."""
    from kvpp_operator.cli import judging, reports

    batch = judging.judge_files(files, config, live=live)
    sys.stdout.write(reports.FORMATS[output](batch))
    raise typer.Exit(batch.exit_code)


@app.command()
def render(
    files: Files,
    output: Annotated[
        ManifestFormat, typer.Option("-o", "--output", help="Form of the manifests.")
    ] = ManifestFormat.YAML,
    config: ConfigFile = None,
    live: Annotated[bool, typer.Option("--live", help="Read port ledger and cluster (KUBECONFIG).")] = False,
) -> None:
    """Print the objects that the operator would apply; refused specs print their findings and nothing else."""
    from kvpp_operator.cli import judging, manifests

    batch = accepted_or_exit(judging.judge_files(files, config, live=live))
    sys.stdout.write(manifests.FORMATS[output](batch))


@app.command()
def commands(
    files: Files,
    output: Annotated[
        TextFormat, typer.Option("-o", "--output", help="text: ready to paste; json: one object a line.")
    ] = TextFormat.TEXT,
    config: ConfigFile = None,
    live: Annotated[bool, typer.Option("--live", help="Read port ledger and cluster (KUBECONFIG).")] = False,
) -> None:
    """Print the `vllm serve` command of every engine process."""
    import json

    from kvpp_operator.cli import judging
    from kvpp_operator.render.commands import commands as commands_of

    batch = accepted_or_exit(judging.judge_files(files, config, live=live))
    for plan in batch.plans:
        for command in commands_of(plan):
            line = (
                json.dumps(command.to_json(), ensure_ascii=False) if output is TextFormat.JSON else command.to_shell()
            )
            sys.stdout.write(f"{line}\n")


@app.command()
def ports(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR|-…]", help="Plan these on an empty ledger; without files the cluster's ledger is read."
        ),
    ] = None,
    output: Annotated[TextFormat, typer.Option("-o", "--output", help="Form of the answer.")] = TextFormat.TEXT,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="One host: its reserved ranges and what is claimed there."),
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Show who owns which ports of the hosts, free runs and conflicts."""
    from kvpp_operator.cli import judging
    from kvpp_operator.cli import ports as pages

    configuration = judging.configuration_from(config)
    if files:
        ledger = accepted_or_exit(judging.judge_files(files, config)).ledger
        host = pages.Host(node) if node else None
    else:
        ledger, host = judging.live_ports(node, configuration)
    as_json = output is TextFormat.JSON
    if host is not None:
        sys.stdout.write((pages.node_json if as_json else pages.node_text)(ledger, configuration, host))
    else:
        sys.stdout.write((pages.to_json if as_json else pages.to_text)(ledger, configuration))


@app.command()
def capacity(
    files: Files,
    output: Annotated[TextFormat, typer.Option("-o", "--output", help="Form of the answer.")] = TextFormat.TEXT,
    config: ConfigFile = None,
) -> None:
    """Predict how many times the tokens KVPP lets each engine's KV cache hold."""
    from kvpp_operator.cli import capacity as pages
    from kvpp_operator.cli import judging

    batch = accepted_or_exit(judging.judge_files(files, config))
    sys.stdout.write((pages.to_json if output is TextFormat.JSON else pages.to_text)(batch))


@app.command()
def explain(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule's id, as findings name it.")],
    output: Annotated[TextFormat, typer.Option("-o", "--output", help="Form of the answer.")] = TextFormat.TEXT,
) -> None:
    """Print a rule with its source, versions, an example that breaks it, and the fix."""
    from kvpp_operator.cli import explain as pages
    from kvpp_operator.rules.examples import example_of

    found = pages.find(rule)
    if found is None:
        near = ", ".join(pages.closest(rule))
        sys.stderr.write(
            f"kvpp: there is no rule {rule}{f'; closest: {near}' if near else ''}. `kvpp rules` lists all.\n"
        )
        raise typer.Exit(2)
    form = pages.as_json if output is TextFormat.JSON else pages.as_text
    sys.stdout.write(form(found, example_of(found.id)))


@app.command()
def rules(
    output: Annotated[TextFormat, typer.Option("-o", "--output", help="Form of the list.")] = TextFormat.TEXT,
) -> None:
    """List every rule with severity and versions."""
    import json

    from kvpp_operator.cli import explain as pages
    from kvpp_operator.rules import RULES

    if output is TextFormat.JSON:
        sys.stdout.write(json.dumps([pages.to_json(one) for one in RULES], ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.write(pages.listing())


@app.command()
def crd() -> None:
    """Print the CustomResourceDefinitions."""
    from kvpp_operator.cli import manifests
    from kvpp_operator.crd import definitions

    sys.stdout.write(manifests.to_yaml(definitions()))


@app.command()
def run(
    config: ConfigFile = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="Serve only these; default: the configuration's, else all."),
    ] = None,
    listen: Annotated[str, typer.Option(help="Address of /healthz, /readyz and /metrics.")] = "0.0.0.0:8080",
    workers: Annotated[int, typer.Option(min=1, max=64, help="Deployments reconciled at once.")] = 8,
) -> None:
    """Run the operator against the cluster of KUBECONFIG or the pod's own."""
    from kvpp_operator.cli import judging
    from kvpp_operator.controller.main import run_operator

    configuration = judging.configuration_from(config)
    raise typer.Exit(
        run_operator(
            configuration, namespaces=tuple(namespace or configuration.watch_namespaces), listen=listen, workers=workers
        )
    )


@app.command()
def preflight(
    files: Files,
    *,
    output: Annotated[TextFormat, typer.Option("-o", "--output", help="Form of the answer.")] = TextFormat.TEXT,
    config: ConfigFile = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="Only these; default: all that offer the engines' NPUs."),
    ] = None,
    npus: Annotated[int, typer.Option(min=0, max=64, help="NPUs to ask for on each node; 0 where none is free.")] = 1,
    timeout: Annotated[
        int, typer.Option(min=10, max=7200, help="Seconds for all nodes, pulling images included.")
    ] = 600,
) -> None:
    """Look on every node, in the engine's own pod, for what the engine needs: 0 nothing is missing, 1 something is, 2."""
    from kvpp_operator.cli import judging
    from kvpp_operator.cli import preflight as pages

    batch = accepted_or_exit(judging.judge_files(files, config))
    answers = pages.ask(batch, tuple(node or ()), npus=npus, seconds=timeout)
    sys.stdout.write((pages.to_json if output is TextFormat.JSON else pages.to_text)(answers))
    raise typer.Exit(int(any(answer.has_errors for answer in answers)))


@app.command(
    name="router-agent",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def router_agent(context: typer.Context) -> None:
    """Run a router pod's agent beside the P/D proxy: what its Deployment starts. `kvpp router-agent --help` lists its options."""
    import os

    from kvpp_operator.cli import judging
    from kvpp_operator.cluster.kubeconfig import KubeconfigError
    from kvpp_operator.router.agent import run_agent
    from kvpp_operator.router.settings import settings_from

    try:
        raise typer.Exit(run_agent(settings_from(context.args, os.environ)))
    except KubeconfigError as problem:
        judging.usage_error(f"no way to the API server: {problem}")


def accepted_or_exit(batch: Batch) -> Batch:
    """Refused or unreadable input: findings on stderr, nothing on stdout."""
    from kvpp_operator.cli import reports

    if batch.exit_code:
        sys.stderr.write(reports.to_text(batch, stream=sys.stderr))
        raise typer.Exit(batch.exit_code)
    return batch
