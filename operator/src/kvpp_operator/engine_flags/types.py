"""Whether a JSON value is what a configuration class of the engine takes, with pydantic's lax conversions.

The types are those that `conformance/` writes into the data (its `engine/types.py` has the list). A misfit is surely
refused by the engine; what fits may still be refused by a check across fields.
Source of the conversions: pydantic's conversion table, JSON input, lax mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Type = Any
"""A word or a one-keyed map: see the list in conformance."""

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "off", "f", "false", "n", "no"})
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


@dataclass(frozen=True)
class Misfit:
    """A place in a JSON value that the engine refuses. `known`: the keys that this object takes, for an unknown key."""

    path: tuple[str, ...]
    value: Any
    expected: str
    known: tuple[str, ...] = ()


def misfits(value: Any, kind: Type, path: tuple[str, ...] = ()) -> Iterator[Misfit]:
    """Every place that does not fit."""
    if isinstance(kind, str):
        if not _fits_word(value, kind):
            yield Misfit(path, value, words(kind))
        return
    (name, inner), *_ = kind.items()
    if name == "opt":
        if value is not None:
            yield from misfits(value, inner, path)
    elif name == "fields":
        yield from _in_object(value, inner, path, is_open=kind.get("open", False))
    elif name in ("list", "map"):
        yield from _in_collection(value, name, inner, path)
    elif not _fits(value, name, inner):
        yield Misfit(path, value, words(kind))


def _in_object(value: Any, fields: Mapping[str, Type], path: tuple[str, ...], *, is_open: bool) -> Iterator[Misfit]:
    if not isinstance(value, dict):
        yield Misfit(path, value, "an object")
        return
    for key, one in value.items():
        if key in fields:
            yield from misfits(one, fields[key], (*path, key))
        elif not is_open:
            yield Misfit((*path, key), one, "a known key", tuple(fields))


def _in_collection(value: Any, name: str, inner: Type, path: tuple[str, ...]) -> Iterator[Misfit]:
    if name == "list":
        if not isinstance(value, list):
            yield Misfit(path, value, words({name: inner}))
            return
        for index, one in enumerate(value):
            yield from misfits(one, inner, (*path, str(index)))
        return
    if not isinstance(value, dict):
        yield Misfit(path, value, words({name: inner}))
        return
    for key, one in value.items():
        yield from misfits(one, inner, (*path, key))


def _fits(value: Any, name: str, inner: Any) -> bool:
    if name == "one":
        return any(type(value) is type(one) and value == one for one in inner)
    if name == "name":
        return isinstance(value, str) and value.upper() in (one.upper() for one in inner)
    if name == "union":
        return any(not list(misfits(value, one)) for one in inner)
    number = _number(value)
    return _fits_word(value, name) and number is not None and all(_within(number, *bound) for bound in inner.items())


def _fits_word(value: Any, kind: str) -> bool:
    match kind:
        case "any":
            return True
        case "str":
            return isinstance(value, str)
        case "bool":
            return _is_boolean(value)
        case "float":
            return _number(value) is not None
        case "int":
            number = _number(value)
            return (
                number is not None
                and not math.isnan(number)
                and not math.isinf(number)
                and number == math.floor(number)
            )
    raise ValueError(f"unknown type {kind}")


def _is_boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in _TRUE | _FALSE
    return isinstance(value, bool | int | float) and value in (0, 1)


def _number(value: Any) -> float | None:
    """The number that pydantic makes of it: booleans are 0 and 1, numbers may be written as strings."""
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str):
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _within(number: float, name: str, bound: float) -> bool:
    match name:
        case "ge":
            return number >= bound
        case "gt":
            return number > bound
        case "le":
            return number <= bound
    return number < bound


_WORDS = {"int": "an integer", "float": "a number", "str": "a string", "bool": "true or false", "any": "any value"}


def words(kind: Type) -> str:
    """The type in a person's words: `an integer, at least 1`."""
    if isinstance(kind, str):
        return _WORDS[kind]
    (name, inner), *_ = kind.items()
    match name:
        case "opt":
            said = f"{words(inner)} or null"
        case "list":
            said = f"a list (each {words(inner)})"
        case "map" | "fields":
            said = "an object"
        case "one" | "name":
            said = "one of " + ", ".join(str(one) for one in inner) if inner else "nothing that JSON can say"
        case "union":
            said = " or ".join(dict.fromkeys(words(one) for one in inner))
        case _:
            said = words(name) + "".join(f", {_BOUNDS[bound]} {limit}" for bound, limit in inner.items())
    return said
