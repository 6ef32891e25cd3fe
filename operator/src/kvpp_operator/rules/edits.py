"""The smallest changes that remove a finding, and how they are applied to a document."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kvpp_operator.rules import paths


@dataclass(frozen=True)
class Set:
    """Put a value at a path; maps on the way are made, and an index at a list's end appends."""

    path: str
    value: Any

    def __str__(self) -> str:
        return f"set {self.path} to {plain(self.value)}"


@dataclass(frozen=True)
class Remove:
    """Take a field or list entry away."""

    path: str

    def __str__(self) -> str:
        return f"remove {self.path}"


Edit = Set | Remove


def applied(document: Any, edits: Iterable[Edit]) -> Any:
    """A changed copy. Paths mean the document as it was, so entries are taken from the end of a list first."""
    changed = copy.deepcopy(document)
    edits = tuple(edits)
    for edit in edits:
        if isinstance(edit, Set):
            put(changed, paths.split(edit.path), copy.deepcopy(edit.value))
    for path in sorted({edit.path for edit in edits if isinstance(edit, Remove)}, key=paths.order, reverse=True):
        take(changed, paths.split(path))
    return changed


def put(node: Any, parts: tuple[paths.Part, ...], value: Any) -> None:
    for part, following in pairwise(parts):
        if isinstance(node, dict) and not isinstance(node.get(part), (dict, list)):
            node[part] = [] if isinstance(following, int) else {}
        node = node[part]
    if isinstance(node, list) and parts[-1] == len(node):
        node.append(value)
    else:
        node[parts[-1]] = value


def take(node: Any, parts: tuple[paths.Part, ...]) -> None:
    for part in parts[:-1]:
        node = node[part]
    del node[parts[-1]]


def plain(value: Any) -> str:
    """A value as a user would write it in YAML, on one line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(plain, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {plain(item)}' for key, item in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and UNQUOTED.fullmatch(value) else str(value)


UNQUOTED = re.compile(r"|~|null|true|false|yes|no|on|off|[-+]?[0-9][0-9_]*(\.[0-9]*)?|0[box][0-9a-f]+", re.IGNORECASE)
"""Text that YAML reads as something else unless it stands in quotes."""
