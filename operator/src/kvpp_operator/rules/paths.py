"""The user's way of naming a place: `spec.prefill.env[0].name`, `metadata.labels["a.b/c"]`.

A path is text for people and scripts; edits and order need its parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

Part = str | int

PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*\Z")
TOKEN = re.compile(r'\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|\.?([^.\[\]]+)')


def join(parts: Iterable[Part]) -> str:
    """`("spec", "env", 0)` → `spec.env[0]`; a key that is no plain word is quoted in brackets."""
    text = ""
    for part in parts:
        text += step(part) if text else step(part).removeprefix(".")
    return text


def step(part: Part) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if PLAIN.match(part) else f"[{json.dumps(part, ensure_ascii=False)}]"


def split(path: str) -> tuple[Part, ...]:
    """The parts of a path, indices as int; the empty path is the whole document."""
    return tuple(
        int(index) if index else json.loads(quoted) if quoted else plain for index, quoted, plain in TOKEN.findall(path)
    )


def below(path: str, *parts: Part) -> str:
    """`path` and more parts behind it."""
    return path + "".join(map(step, parts)) if path else join(parts)


def is_within(path: str, place: str) -> bool:
    """Whether `path` is `place` or lies in it."""
    inner, outer = split(path), split(place)
    return inner[: len(outer)] == outer


def lookup(document: Any, path: str) -> Any:
    """What stands at a path, None when nothing does."""
    node = document
    for part in split(path):
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def order(path: str) -> tuple[tuple[int, str], ...]:
    """A sort key: indices as numbers, before words."""
    return tuple((part, "") if isinstance(part, int) else (-1, part) for part in split(path))
