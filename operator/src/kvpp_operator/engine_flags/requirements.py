"""What the engine's command line checks across flags before it starts (`validate_parsed_serve_args`, `ServeSubcommand.cmd`).

Only for a complete command: a flag may need one that stands elsewhere in it. Rules about data parallel supervisors are
left out: the operator renders none.
Source: vllm/entrypoints/…/cli_args.py and vllm/entrypoints/cli/serve.py, the same in 0.28.0 to 0.30.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.engine_flags.parse import Argument, ParsedArguments
from kvpp_operator.engine_flags.problems import Problem

_NEEDS = {"--enable-auto-tool-choice": "--tool-call-parser", "--enable-log-outputs": "--enable-log-requests"}
_EXCLUDES = {"--enable-per-request-metrics": "--disable-log-stats"}
_BALANCERS = (
    ("--data-parallel-external-lb", "--data-parallel-rank"),
    ("--data-parallel-hybrid-lb", "--data-parallel-start-rank"),
    ("--data-parallel-multi-port-external-lb",),
)


def requirements(parsed: ParsedArguments) -> Iterator[tuple[Argument, Problem]]:
    """Each flag that asks for another, or excludes one, with the problem."""
    yield from at_parsing(parsed)
    yield from at_start(parsed)


def at_parsing(parsed: ParsedArguments) -> Iterator[tuple[Argument, Problem]]:
    """What `validate_parsed_serve_args` refuses."""
    for flag, needed in _NEEDS.items():
        if (use := _on(parsed, flag)) and not _on(parsed, needed):
            yield use, Problem("missing-value", f"{flag} needs {needed}", needed)
    for flag, excluded in _EXCLUDES.items():
        if (use := _on(parsed, flag)) and _on(parsed, excluded):
            yield use, Problem("unexpected-value", f"{flag} and {excluded} exclude each other")


def at_start(parsed: ParsedArguments) -> Iterator[tuple[Argument, Problem]]:
    """What `ServeSubcommand.cmd` refuses."""
    if parsed.last("--headless") and (count := parsed.last("--api-server-count")) and count.values not in ((), ("0",)):
        yield count, Problem("unexpected-value", "--api-server-count can't be used with --headless")
    balancers = [use for names in _BALANCERS if (use := _first_on(parsed, names))]
    for use in balancers[1:]:
        yield use, Problem("unexpected-value", "more than one data parallel load balancing mode")


def _first_on(parsed: ParsedArguments, names: tuple[str, ...]) -> Argument | None:
    return next(filter(None, (_on(parsed, name) for name in names)), None)


def _on(parsed: ParsedArguments, flag: str) -> Argument | None:
    """The use of a flag that leaves it on or gives it a value."""
    use = parsed.last(flag)
    return None if use is None or use.negated or use.values in (("",), ("None",)) else use
