"""vLLM's own command line, as `vllm serve` builds it, and what it makes of an argument list."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
from dataclasses import dataclass
from typing import Any


class Refused(Exception):  # noqa: N818  (a verdict, not a fault)
    """The engine refuses the command; the text is the engine's own."""


@dataclass
class Taken:
    """Which option took which words, in the order in which argparse handed them out."""

    flag: str
    words: list[str]


class CommandLine:
    """The `vllm` parser with its `serve` command (vllm/entrypoints/cli/main.py builds it the same way)."""

    def __init__(self) -> None:
        self.module = importlib.import_module("vllm.entrypoints.cli.serve")
        flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
        self.parser = flexible(prog="vllm")
        self.parser.add_argument("-v", "--version", action="version", version="")
        commands = self.parser.add_subparsers(required=False, dest="subparser")
        self.serve = self.module.cmd_init()[0]
        self.serve_parser: argparse.ArgumentParser = self.serve.subparser_init(commands)

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """`argv` from `serve` on. Raises Refused: also for the engine's tracebacks, which end a start as surely."""
        arguments: argparse.Namespace = self._refusing(lambda: self._parse_and_validate(argv))
        return arguments

    def taken(self, argv: list[str]) -> list[Taken]:
        """Like parse, but tells what each option was given, by the name that `name_of` gives it."""
        record: list[Taken] = []
        parser_class: Any = argparse.ArgumentParser
        original = parser_class._get_values  # noqa: SLF001

        def watched(parser: argparse.ArgumentParser, action: argparse.Action, words: list[str]) -> Any:
            if parser is self.serve_parser and action.option_strings:
                record.append(Taken(name_of(action), list(words)))
            return original(parser, action, words)

        parser_class._get_values = watched  # noqa: SLF001
        try:
            self.parse(argv)
        finally:
            parser_class._get_values = original  # noqa: SLF001
        return record

    def _parse_and_validate(self, argv: list[str]) -> argparse.Namespace:
        arguments: argparse.Namespace = self.parser.parse_args(argv)
        self.serve.validate(arguments)
        return arguments

    def _refusing(self, act: Any) -> Any:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                return act()
        except SystemExit as end:
            if end.code:
                raise Refused(said.getvalue().strip().split("error: ", 1)[-1]) from None
            raise Refused("prints its help and ends") from None
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error


def name_of(action: argparse.Action) -> str:
    """The name a person would look up: the first long one that is not a negation."""
    long = [name for name in action.option_strings if name.startswith("--")]
    return next((name for name in long if not name.startswith("--no-")), long[0] if long else action.option_strings[0])
