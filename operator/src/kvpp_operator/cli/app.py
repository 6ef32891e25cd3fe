"""The commands. Imports stand inside them where they cost time: `kvpp validate` must start like a small tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvpp_operator.cli.judging import Batch

    Command = Callable[..., Any]

FILES = "FILE|DIR|-…"

files_argument = click.argument("files", metavar=FILES, nargs=-1, required=True)
config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The operator's configuration, as in its ConfigMap.",
)
live_option = click.option("--live", is_flag=True, help="Read port ledger and cluster (KUBECONFIG).")


def output_option(*forms: str, words: str) -> Callable[[Command], Command]:
    """`-o FORM`, the first form by default."""
    return click.option("-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help=words)


answer_option = output_option("text", "json", words="Form of the answer.")


@click.group(name="kvpp", no_args_is_help=True, context_settings={"max_content_width": 120})
@click.version_option(package_name="kvpp-operator", prog_name="kvpp")
def app() -> None:
    """Validated vLLM Ascend deployments with KV pipeline parallelism."""


@app.command()
@files_argument
@output_option("text", "json", "sarif", words="Form of the report.")
@config_option
@live_option
def validate(files: tuple[str, ...], output: str, config: Path | None, *, live: bool) -> None:
    """Judge every document: 0 nothing worse than warnings, 1 errors, 2 unreadable input."""
    from kvpp_operator.cli import judging, reports

    batch = judging.judge_files(files, config, live=live)
    sys.stdout.write(reports.FORMATS[output](batch))
    raise click.exceptions.Exit(batch.exit_code)


@app.command()
@files_argument
@output_option("yaml", "json", words="Form of the manifests.")
@config_option
@live_option
def render(files: tuple[str, ...], output: str, config: Path | None, *, live: bool) -> None:
    """Print the objects that the operator would apply; refused specs print their findings and nothing else."""
    from kvpp_operator.cli import judging, manifests

    batch = accepted_or_exit(judging.judge_files(files, config, live=live))
    sys.stdout.write(manifests.FORMATS[output](batch))


@app.command()
@files_argument
@output_option("text", "json", words="text: ready to paste; json: one object a line.")
@config_option
@live_option
def commands(files: tuple[str, ...], output: str, config: Path | None, *, live: bool) -> None:
    """Print the `vllm serve` command of every engine process."""
    import json

    from kvpp_operator.cli import judging
    from kvpp_operator.render.commands import commands as commands_of

    batch = accepted_or_exit(judging.judge_files(files, config, live=live))
    for plan in batch.plans:
        for command in commands_of(plan):
            line = json.dumps(command.to_json(), ensure_ascii=False) if output == "json" else command.to_shell()
            sys.stdout.write(f"{line}\n")


@app.command()
@click.argument("files", metavar=f"[{FILES}]", nargs=-1)
@answer_option
@click.option("--node", metavar="NAME", help="One host: its reserved ranges and what is claimed there.")
@config_option
def ports(files: tuple[str, ...], output: str, node: str | None, config: Path | None) -> None:
    """Show who owns which ports of the hosts, free runs and conflicts.

    FILES are planned together on an empty ledger; without them the cluster's ledger is read.
    """
    from kvpp_operator.cli import judging
    from kvpp_operator.cli import ports as pages

    configuration = judging.configuration_from(config)
    if files:
        ledger = accepted_or_exit(judging.judge_files(files, config)).ledger
        host = pages.Host(node) if node else None
    else:
        ledger, host = judging.live_ports(node, configuration)
    if host is not None:
        page = pages.node_json if output == "json" else pages.node_text
        sys.stdout.write(page(ledger, configuration, host))
    else:
        sys.stdout.write((pages.to_json if output == "json" else pages.to_text)(ledger, configuration))


@app.command()
@files_argument
@answer_option
@config_option
def capacity(files: tuple[str, ...], output: str, config: Path | None) -> None:
    """Predict how many times the tokens KVPP lets each engine's KV cache hold."""
    from kvpp_operator.cli import capacity as pages
    from kvpp_operator.cli import judging

    batch = accepted_or_exit(judging.judge_files(files, config))
    sys.stdout.write((pages.to_json if output == "json" else pages.to_text)(batch))


@app.command()
@click.argument("rule", metavar="RULE")
@answer_option
def explain(rule: str, output: str) -> None:
    """Print RULE, named as findings do, with its source, versions, an example that breaks it, and the fix."""
    from kvpp_operator.cli import explain as pages
    from kvpp_operator.rules.examples import example_of

    found = pages.find(rule)
    if found is None:
        near = ", ".join(pages.closest(rule))
        sys.stderr.write(
            f"kvpp: there is no rule {rule}{f'; closest: {near}' if near else ''}. `kvpp rules` lists all.\n"
        )
        raise click.exceptions.Exit(2)
    form = pages.as_json if output == "json" else pages.as_text
    sys.stdout.write(form(found, example_of(found.id)))


@app.command()
@output_option("text", "json", words="Form of the list.")
def rules(output: str) -> None:
    """List every rule with severity and versions."""
    import json

    from kvpp_operator.cli import explain as pages
    from kvpp_operator.rules import RULES

    if output == "json":
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
@config_option
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, help="Serve only these; default: the configuration's, else all."
)
@click.option("--listen", default="0.0.0.0:8080", show_default=True, help="Address of /healthz, /readyz and /metrics.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=8, show_default=True, help="Deployments reconciled at once."
)
def run(config: Path | None, namespaces: tuple[str, ...], listen: str, workers: int) -> None:
    """Run the operator against the cluster of KUBECONFIG or the pod's own."""
    from kvpp_operator.cli import judging
    from kvpp_operator.controller.main import run_operator

    configuration = judging.configuration_from(config)
    served = namespaces or tuple(configuration.watch_namespaces)
    raise click.exceptions.Exit(run_operator(configuration, namespaces=served, listen=listen, workers=workers))


@app.command()
@files_argument
@answer_option
@config_option
@click.option(
    "--node", "nodes", metavar="NAME", multiple=True, help="Only these; default: all that offer the engines' NPUs."
)
@click.option(
    "--npus",
    type=click.IntRange(0, 64),
    default=1,
    show_default=True,
    help="NPUs to ask for on each node; 0 where none is free.",
)
@click.option(
    "--timeout",
    type=click.IntRange(10, 7200),
    default=600,
    show_default=True,
    help="Seconds for all nodes, pulling images included.",
)
def preflight(
    files: tuple[str, ...], *, output: str, config: Path | None, nodes: tuple[str, ...], npus: int, timeout: int
) -> None:
    """Look on every node, in the engine's own pod, for what the engine needs: 0 nothing is missing, 1 something is, 2."""
    from kvpp_operator.cli import judging
    from kvpp_operator.cli import preflight as pages

    batch = accepted_or_exit(judging.judge_files(files, config))
    answers = pages.ask(batch, nodes, npus=npus, seconds=timeout)
    sys.stdout.write((pages.to_json if output == "json" else pages.to_text)(answers))
    raise click.exceptions.Exit(int(any(answer.has_errors for answer in answers)))


@app.command(name="router-agent", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def router_agent(arguments: tuple[str, ...]) -> None:
    """Run a router pod's agent beside the P/D proxy: what its Deployment starts. `kvpp router-agent --help` lists its options."""
    import os

    from kvpp_operator.cli import judging
    from kvpp_operator.cluster.kubeconfig import KubeconfigError
    from kvpp_operator.router.agent import run_agent
    from kvpp_operator.router.settings import settings_from

    try:
        raise click.exceptions.Exit(run_agent(settings_from(arguments, os.environ)))
    except KubeconfigError as problem:
        judging.usage_error(f"no way to the API server: {problem}")


def accepted_or_exit(batch: Batch) -> Batch:
    """Refused or unreadable input: findings on stderr, nothing on stdout."""
    from kvpp_operator.cli import reports

    if batch.exit_code:
        sys.stderr.write(reports.to_text(batch, stream=sys.stderr))
        raise click.exceptions.Exit(batch.exit_code)
    return batch
