"""The command line through the operator's flag catalogue of the release that is played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_operator import versions
from kvpp_operator.engine_flags import catalogue, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvpp_engine_simulator.arguments import Json


@dataclass(frozen=True)
class CommandLine:
    model: str
    flags: Json
    """By their long names, values typed."""
    problems: tuple[str, ...]


def read(arguments: Sequence[str], version: str) -> CommandLine:
    """Arguments after `vllm serve`; the model comes first, as the operator writes it and vLLM's help says."""
    model, rest = ("", list(arguments))
    if rest and not rest[0].startswith("-"):
        model, *rest = rest
    release = versions.known(version) or versions.nearest(version)
    parsed = parse(rest, catalogue(release.name))
    flags = {given.flag: given.value for given in parsed.given}
    return CommandLine(model or str(flags.get("--model", "")), flags, tuple(map(str, parsed.problems)))
