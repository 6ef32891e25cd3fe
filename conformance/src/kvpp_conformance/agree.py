"""Whether our reading of an argument list and the real parser's are the same, over many random lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvpp_operator.engine_flags import FlagCatalogue, ParsedArguments, Problem, parse
from kvpp_operator.engine_flags.problems import STRICTER
from kvpp_operator.engine_flags.requirements import at_parsing
from kvpp_operator.engine_flags.spelling import respell
from kvpp_operator.engine_flags.values import expanded

_ACROSS_FIELDS = re.compile(
    r"type=(value_error|assertion_error)|^(KeyError|AssertionError|TypeError|AttributeError|ImportError)"
)
"""A configuration class's check that looks at several fields, or its crash. Our types can't know it, and promise not to."""


@dataclass(frozen=True)
class Disagreement:
    arguments: list[str]
    ours: str
    real: str

    def __str__(self) -> str:
        return f"{self.arguments}\n    ours: {self.ours}\n    real: {self.real}"


@dataclass
class Tally:
    """How the lists fell."""

    accepted: int = 0
    refused: int = 0
    stricter: int = 0
    """Refused by us alone, for what nobody can mean (engine_flags/problems.py, STRICTER)."""
    deeper: int = 0
    """Refused by the engine alone: a check across fields, or a value that only code can judge."""


def request(arguments: list[str]) -> dict[str, Any]:
    return {"do": "taken", "argv": ["serve", "MODEL", *arguments]}


def compare(
    pairs: Iterator[tuple[list[str], dict[str, Any]]], catalogue: FlagCatalogue, tally: Tally
) -> Iterator[Disagreement]:
    """The lists on which the verdicts, or the values that the flags got, differ. Counts into `tally`."""
    for arguments, answer in pairs:
        parsed = parse(arguments, catalogue)
        ours = _first_problem(parsed)
        if answer["parser"] != "ok":
            if ours:
                tally.refused += 1
            elif _is_deeper(answer["parser"], arguments, parsed, catalogue):
                tally.deeper += 1
            else:
                yield Disagreement(arguments, "ok", answer["parser"])
        elif ours and ours.kind in STRICTER:
            tally.stricter += 1
        elif ours:
            yield Disagreement(arguments, ours.message, "ok")
        elif (mine := _plain(parsed)) != (its := _real(answer["taken"], parsed)):
            yield Disagreement(arguments, str(mine), str(its))
        else:
            tally.accepted += 1


def _first_problem(parsed: ParsedArguments) -> Problem | None:
    """One that the engine has too, if there is one."""
    found = [problem for _, problem in (*parsed.problems, *at_parsing(parsed))]
    return next((problem for problem in found if problem.kind not in STRICTER), next(iter(found), None))


def _plain(parsed: ParsedArguments) -> list[list[Any]]:
    """What each flag got, in one piece; then which flags got keys."""
    plain = [[one.flag, list(one.values)] for one in parsed if one.path is None]
    return [*plain, sorted({str(one.flag) for one in parsed if one.path is not None})]


def _real(taken: list[list[Any]], parsed: ParsedArguments) -> list[list[Any]]:
    """The same of what argparse handed out: it gets the dotted keys last, one JSON for each spelling of a flag."""
    keyed = len({(one.text.split("=")[0].split(".")[0].replace("_", "-")) for one in parsed if one.path is not None})
    plain, dotted = (taken[:-keyed], taken[-keyed:]) if keyed else (taken, [])
    return [*plain, sorted({flag for flag, _ in dotted})]


def _is_deeper(message: str, arguments: list[str], parsed: ParsedArguments, catalogue: FlagCatalogue) -> bool:
    """Only where the data says that it does not know: a class with checks of its own, or a value of type "any"."""
    given = [*_objects(arguments, parsed, catalogue)]
    if _ACROSS_FIELDS.search(message):
        return bool(given)
    return any(_has_any(value, kind) for value, kind in given)


def _objects(arguments: list[str], parsed: ParsedArguments, catalogue: FlagCatalogue) -> Iterator[tuple[Any, Any]]:
    for one in parsed:
        flag = catalogue.flags[one.flag] if one.flag else None
        if flag is not None and flag.kind == "object" and one.path is None:
            yield from ((json.loads(expanded(word)), flag.type) for word in one.values if word not in ("", "None"))
    for dotted in respell(arguments).dotted:
        name = catalogue.resolve(dotted.head)
        if name and catalogue.flags[name].kind == "object":
            yield dotted.merged, catalogue.flags[name].type


def _has_any(value: Any, kind: Any) -> bool:
    if isinstance(kind, str):
        return kind == "any"
    (name, inner), *_ = kind.items()
    match name:
        case "opt":
            return _has_any(value, inner)
        case "fields" if isinstance(value, dict):
            return any(_has_any(one, inner.get(key, "any")) for key, one in value.items())
        case "list" if isinstance(value, list):
            return any(_has_any(one, inner) for one in value)
        case "map" if isinstance(value, dict):
            return any(_has_any(one, inner) for one in value.values())
    return False
