"""The flags of `vllm serve` and the keys of `--additional-config`, by release of vLLM Ascend, read from package data.

The data is written by `make generate-engine-flags` from the real parsers; each file says from which.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from kvpp_operator.engine_flags.ascend import ADDITIONS, Addition
from kvpp_operator.engine_flags.types import Type

VERSIONS = ("0.28.0rc1", "0.29.0rc1", "0.30.0rc1", "0.30.0rc2")
"""Releases with a catalogue of their own, oldest first."""
NEWEST = VERSIONS[-1]
LATEST = "latest"
"""Has the newest catalogue: no package of that branch exists to read (facts section 0)."""


@dataclass(frozen=True)
class Flag:
    """One option of the parser."""

    name: str
    """The canonical name: the first long one that is not a negation."""
    names: tuple[str, ...]
    """Every spelling, negations (`--no-…`) and short ones included."""
    kind: str
    """What a value is: "flag" (there is none), "str", "int", "float", "count" (an integer, or 32k, 1M),
    "count|auto" (also auto and -1), "json" (any JSON), "json|str" (JSON where it is in braces), "object" (JSON of `type`),
    "lower_" (a name, case and - or _ don't matter), "words" (separated by commas), "lora" (name=path or JSON)."""
    values: int | str
    """How many: 0, 1, "?" (0 or 1), "+" (1 or more)."""
    choices: tuple[Any, ...] = ()
    type: Type = None
    """Of an "object": `types.misfits` judges values of it."""
    optional: bool = False
    """`None` and the empty string mean: not set."""
    repeats: bool = False
    """Given again it adds; all others overwrite."""
    deprecated: bool = False

    @property
    def takes_json(self) -> bool:
        """Also key by key: `--flag.key.key value`."""
        return self.kind in ("json", "json|str", "object")


@dataclass(frozen=True)
class FlagCatalogue:
    """What one release takes. `source` names the packages it was read from."""

    version: str
    source: str
    flags: Mapping[str, Flag]
    """By canonical name, in the parser's order."""
    additional_keys: Mapping[str, Type]
    """The keys of `--additional-config` and what each may be."""
    ignored_additional_keys: frozenset[str]
    """Taken and without effect: the engine computes them itself."""
    spellings: Mapping[str, Flag] = field(repr=False)
    """By every name of every flag."""

    def named(self, spelling: str) -> tuple[str, ...]:
        """The names that a spelling may mean: itself, else those that it abbreviates (argparse takes a unique one)."""
        if spelling in self.spellings:
            return (spelling,)
        if len(spelling) < 2 or not spelling.startswith("-"):  # noqa: PLR2004
            return ()
        return tuple(name for name in self.spellings if name.startswith(spelling))

    def resolve(self, name: str) -> str | None:
        """The canonical name of a flag in any spelling: `--tensor_parallel_size=4`, `-tp`, `--tensor-par`, `--cc.key`.

        None: unknown, or an abbreviation of several.
        """
        head = name.split("=", 1)[0]
        if head.startswith("-") and "." in head:
            head = head.split(".", 1)[0]
        found = self.named(head.replace("_", "-") if head.startswith("--") else head)
        return self.spellings[found[0]].name if len(found) == 1 else None


def catalogue(version: str) -> FlagCatalogue:
    """The catalogue of a release, or of `latest`. Raises KeyError for a version that has none."""
    if version == LATEST:
        newest = catalogue(NEWEST)
        return replace(newest, version=LATEST, source=f"{newest.source}, the newest there is")
    if version not in VERSIONS:
        raise KeyError(version)
    return _read(version)


@cache
def _read(version: str) -> FlagCatalogue:
    data = json.loads(resources.files(__package__).joinpath("data", f"{version}.json").read_bytes())
    return from_data(version, data, ADDITIONS[version])


def from_data(version: str, data: Mapping[str, Any], additions: Iterable[Addition]) -> FlagCatalogue:
    """The catalogue that a data file holds, with what vLLM Ascend adds. Keys: source, flags, additional, ignored."""
    flags = {flag.name: flag for flag in _flags(data["flags"])}
    for addition in additions:
        flags[addition.flag] = _widened(flags[addition.flag], addition)
    return FlagCatalogue(
        version=version,
        source=data["source"],
        flags=MappingProxyType(flags),
        additional_keys=MappingProxyType(data["additional"]),
        ignored_additional_keys=frozenset(data["ignored"]),
        spellings=MappingProxyType({name: flag for flag in flags.values() for name in flag.names}),
    )


def _flags(rows: list[list[Any]]) -> Iterator[Flag]:
    """A row: the names, canonical first, separated by spaces; kind; values; what differs from the usual."""
    for names, kind, values, *more in rows:
        usual = more[0] if more else {}
        spelled = tuple(names.split(" "))
        yield Flag(spelled[0], spelled, kind, values, **{**usual, "choices": tuple(usual.get("choices", ()))})


def _widened(flag: Flag, addition: Addition) -> Flag:
    if not addition.path:
        return replace(flag, choices=_changed(flag.choices, addition))
    return replace(flag, type=_widened_type(flag.type, addition.path, addition))


def _widened_type(kind: Type, path: tuple[str, ...], addition: Addition) -> Type:
    """A copy of the type with other values at a place. Raises KeyError where the type has no such place."""
    if "opt" in kind:
        return {**kind, "opt": _widened_type(kind["opt"], path, addition)}
    if not path:
        return {"one": list(_changed(kind["one"], addition))}
    fields = kind["fields"]
    return {**kind, "fields": {**fields, path[0]: _widened_type(fields[path[0]], path[1:], addition)}}


def _changed(values: Iterable[Any], addition: Addition) -> tuple[Any, ...]:
    return (*(value for value in values if value not in addition.withdrawn), *addition.values)
