"""What the real parser of `vllm serve` knows, as data."""

from __future__ import annotations

import argparse
from typing import Any

from kvpp_conformance.engine import types
from kvpp_conformance.engine.commandline import name_of

_SIMPLE = {
    "int": "int",
    "float": "float",
    "str": "str",
    "loads": "json",
    "human_readable_int": "count",
    "human_readable_int_or_auto": "count|auto",
    "union_dict_and_str": "json|str",
}
_NO_VALUE = ("_StoreTrueAction", "_StoreFalseAction", "BooleanOptionalAction", "_HelpAction")


def describe(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """One entry an option, in the parser's order. Raises NotImplementedError for a kind that we do not know."""
    deprecated = {action.dest for action in getattr(type(parser), "_deprecated", ())}
    return [_entry(action, deprecated) for action in parser._actions if action.option_strings]  # noqa: SLF001


def _entry(action: argparse.Action, deprecated: set[str]) -> dict[str, Any]:
    kind, optional, schema = _kind(action)
    entry: dict[str, Any] = {
        "name": name_of(action),
        "names": list(action.option_strings),
        "kind": kind,
        "values": 0 if kind == "flag" else (1 if action.nargs is None else action.nargs),
        "optional": optional,
        "deprecated": action.dest in deprecated,
        "repeats": type(action).__name__ == "_AppendAction",
    }
    if action.choices is not None and kind != "flag":
        entry["choices"] = [choice for choice in action.choices if choice is not None]
    if schema is not None:
        entry["schema"] = schema
    return entry


def _kind(action: argparse.Action) -> tuple[str, bool, Any]:
    """(kind, whether "None" and "" mean nothing, the type of a JSON object)."""
    if type(action).__name__ in _NO_VALUE:
        return "flag", False, None
    if type(action).__name__ == "LoRAParserAction":
        return "lora", False, None
    convert, optional = action.type, False
    while (inner := _wrapped(convert)) is not None:
        optional |= convert.__qualname__.startswith("optional_type")  # type: ignore[union-attr]
        convert = inner
    name = getattr(convert, "__qualname__", "str") if convert is not None else "str"
    if name.endswith("parse_dataclass"):
        return "object", optional, types.describe(_default(convert))
    if name.endswith("<lambda>"):
        return _lambda(convert), optional, None
    if name in _SIMPLE:
        return _SIMPLE[name], optional, None
    raise NotImplementedError(f"{action.option_strings}: values of {name}")


def _wrapped(convert: Any) -> Any:
    """What `optional_type(...)` and `parse_type(...)` of vllm/engine/arg_utils.py wrap."""
    closure = getattr(convert, "__closure__", None)
    if not closure or "return_type" not in convert.__code__.co_freevars:
        return None
    return closure[convert.__code__.co_freevars.index("return_type")].cell_contents


def _default(convert: Any) -> Any:
    """The class that `parse_dataclass(val, cls=…)` of vllm/engine/arg_utils.py is for."""
    return convert.__defaults__[0]


def _lambda(convert: Any) -> str:
    """The lambdas of vllm/engine/arg_utils.py have no names: told apart by what they do."""
    result = convert("A-b")
    if result == "a_b":
        return "lower_"
    if result == ["A-b"]:
        return "words"
    raise NotImplementedError(f"a function that makes {result!r} of 'A-b'")
