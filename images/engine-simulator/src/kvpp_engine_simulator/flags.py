"""The command line through the operator's flag catalogue of the release that is played."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvpp_operator import versions
from kvpp_operator.engine_flags import catalogue, parse
from kvpp_operator.engine_flags.values import convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvpp_engine_simulator.arguments import Json
    from kvpp_operator.engine_flags import FlagCatalogue, ParsedArguments


@dataclass(frozen=True)
class CommandLine:
    model: str
    flags: Json
    """By their canonical names, values as the engine's parser makes them."""
    problems: tuple[str, ...]
    """What the parser refuses."""


def read(arguments: Sequence[str], version: str) -> CommandLine:
    """Read what stands after `vllm serve`; the model comes first, as the operator writes it."""
    model, rest = ("", list(arguments))
    if rest and not rest[0].startswith("-"):
        model, *rest = rest
    known = catalogue((versions.known(version) or versions.nearest(version)).name)
    parsed = parse(rest, known)
    problems = tuple(problem.message for _, problem in parsed.problems)
    return CommandLine(model, {} if problems else values(parsed, known), problems)


def values(parsed: ParsedArguments, known: FlagCatalogue) -> Json:
    """The last use of a flag counts; keys of one flag that come one by one are one JSON value, and it counts most."""
    whole: Json = {}
    by_key: Json = {}
    for argument in parsed:
        if argument.flag is None:
            continue
        flag = known.flags[argument.flag]
        if argument.path is not None:
            put(by_key.setdefault(flag.name, {}), argument.path.split("."), loose(argument.values[0]))
        elif flag.kind == "flag":
            whole[flag.name] = not argument.negated
        else:
            given = [convert(flag, word) for word in argument.values if not (flag.optional and word in ("", "None"))]
            whole[flag.name] = given if flag.values == "+" else (given or [None])[-1]
    return {**whole, **by_key}


def put(tree: Json, path: list[str], value: Any) -> None:
    *parents, last = path
    for key in parents:
        tree = tree.setdefault(key, {})
    tree[last] = value


def loose(text: str) -> Any:
    """The value of a dotted key: JSON where it is some, else the text itself (vllm/utils/argparse_utils.py)."""
    try:
        return json.loads(text)
    except ValueError:
        return text
