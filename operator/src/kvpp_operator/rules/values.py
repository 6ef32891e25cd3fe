"""Values in a role's merged `additionalConfig`, with the place where the user wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kvpp_operator.resolve import ResolvedRole
from kvpp_operator.rules import paths
from kvpp_operator.rules.edits import Remove

ABSENT = object()


@dataclass(frozen=True)
class Place:
    """A value that reaches the engine, where it was written, and how to take it back everywhere."""

    path: str
    value: Any
    removal: tuple[Remove, ...]


def dig(tree: Any, keys: tuple[str, ...]) -> Any:
    """The value below nested keys, `ABSENT` when there is none."""
    for key in keys:
        if not isinstance(tree, dict) or key not in tree:
            return ABSENT
        tree = tree[key]
    return tree


def wins(role: ResolvedRole, *keys: str) -> Place | None:
    """What the engine gets for a key of `--additional-config`; a role's own value wins over the engine-wide one."""
    value = dig(role.additional_config, keys)
    if value is ABSENT:
        return None
    places = [
        paths.below(written.path, "additionalConfig", *keys)
        for written in role.written
        if dig(written.additional_config, keys) is not ABSENT
    ]
    return Place(places[-1], value, tuple(map(Remove, places)))


def scheduling(role: ResolvedRole, key: str) -> Place | None:
    """A scheduler's switch: `scheduler_config.<key>` wins over the deprecated top level (launch facts 11.1)."""
    return wins(role, "scheduler_config", key) or wins(role, key)


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def fits(value: Any, kind: Any) -> bool:
    """Whether the engine's lax pydantic types take a value: "true" is a boolean there, "2" a number."""
    try:
        adapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def is_true(value: Any) -> bool:
    """Whether the engine reads a value as true: `true`, `"true"`, `"on"`, 1 (launch facts 1.1)."""
    return fits(value, bool) and bool(adapter(bool).validate_python(value))


def is_false(value: Any) -> bool:
    return fits(value, bool) and not adapter(bool).validate_python(value)


def leaves(role: ResolvedRole) -> Iterator[tuple[str, str, Any]]:
    """(place of the written config, its path, its tree) of every `additionalConfig` that a role gets."""
    for written in role.written:
        yield written.path, f"{written.path}.additionalConfig", written.additional_config
