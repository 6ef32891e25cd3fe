"""The user's `extraArgs` as the engine's parser reads them, each with its place in the spec."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvpp_operator.resolve import Resolved, ResolvedRole, Written
from kvpp_operator.rules.edits import Remove
from kvpp_operator.rules.environment import places


@dataclass(frozen=True)
class Argument:
    """One flag with its value."""

    path: str
    """Of its first token."""
    flag: str
    """The flag's long name, whatever the user's spelling: `--kv-transfer-config`."""
    key: tuple[str, ...]
    """Keys behind a JSON flag, `--flag.key.key`; empty for the flag itself."""
    value: Any
    """JSON where the flag takes JSON, else text; None without a value."""
    removal: tuple[Remove, ...]
    written: Written

    @property
    def settings(self) -> dict[str, Any]:
        """What a JSON flag sets, dotted keys nested; empty when that is no map."""
        value = self.value
        for key in reversed(self.key):
            value = {key: value}
        return value if isinstance(value, dict) else {}

    @property
    def name(self) -> str:
        return ".".join((self.flag, *self.key))


def given_at(written: Written) -> Iterator[Argument]:
    """Arguments of one place, in order."""
    for one in written.arguments.given:
        places_of_tokens = tuple(Remove(f"{written.path}.extraArgs[{index}]") for index in one.indices)
        yield Argument(
            places_of_tokens[0].path, one.flag, tuple(one.key), value_of(one.value), places_of_tokens, written
        )


def value_of(text: Any) -> Any:
    """JSON where it is JSON, else the text."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text


def of_role(role: ResolvedRole) -> Iterator[Argument]:
    """Arguments that reach a role: the engine-wide ones, then its own."""
    for written in role.written:
        yield from given_at(written)


def everywhere(resolved: Resolved) -> Iterator[Argument]:
    """Every argument of the spec once."""
    for written in places(resolved):
        yield from given_at(written)
