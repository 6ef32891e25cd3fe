"""The user's `extraArgs` as the engine's parser reads them, each with its place in the spec."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvpp_operator import engine_flags
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
    """JSON where the text is JSON, else the text; true or false for a flag without a value."""
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
    """Arguments of one place, in order; words that are no flag are left to the rules about the parser."""
    for use in written.arguments:
        if use.flag is not None:
            removal = words_of(written, use)
            yield Argument(removal[0].path, use.flag, key_of(use), value_of(use), removal, written)


def words_of(written: Written, use: engine_flags.Argument) -> tuple[Remove, ...]:
    """The removal of every word of an argument: values that stand behind its flag go with it."""
    following = written.extra_args[use.index + 1 : use.index + 1 + len(use.values)]
    count = 1 + len(use.values) if following == use.values else 1
    return tuple(Remove(f"{written.path}.extraArgs[{use.index + offset}]") for offset in range(count))


def key_of(use: engine_flags.Argument) -> tuple[str, ...]:
    return tuple(use.path.split(".")) if use.path else ()


def value_of(use: engine_flags.Argument) -> Any:
    """A flag without a value is true, negated false; one value is JSON where it can be, else text."""
    if not use.values:
        return not use.negated
    return as_json(use.values[0]) if len(use.values) == 1 else list(use.values)


def as_json(text: str) -> Any:
    """JSON where it is JSON, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def of_role(role: ResolvedRole) -> Iterator[Argument]:
    """Arguments that reach a role: the engine-wide ones, then its own."""
    for written in role.written:
        yield from given_at(written)


def everywhere(resolved: Resolved) -> Iterator[Argument]:
    """Every argument of the spec once."""
    for written in places(resolved):
        yield from given_at(written)
