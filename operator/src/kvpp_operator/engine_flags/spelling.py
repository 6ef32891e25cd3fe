"""The spellings that vLLM allows on top of argparse: underscores, `-O3`, `--config FILE`, JSON key by key.

Mirrors `FlexibleArgumentParser.parse_args` (vllm/utils/argparse_utils.py, the same in 0.28.0 to 0.30.0), oddities included,
because the engine's verdict is what counts:

- it rewrites every word that looks like an option, values too;
- `-0.5` looks like a dotted key and swallows the next word;
- what comes key by key is one JSON object, put last: it replaces what the same flag got in one piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvpp_operator.engine_flags.values import convert_count

_MODEL = re.compile(r"--model(=.+|$)")


@dataclass(frozen=True)
class Key:
    """One `--flag.path value`. `value` is as the engine reads it: JSON if it can be, else the text."""

    index: int
    path: tuple[str, ...]
    text: str
    value: Any
    appends: bool


@dataclass
class Dotted:
    """All keys that were given under one spelling of a flag, merged."""

    head: str
    keys: list[Key] = field(default_factory=list)
    merged: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Word:
    """One word for argparse, and the argument (by its place in the list) that it comes from."""

    text: str
    index: int
    dotted: Dotted | None = None
    """Set on the flag that stands for keys; the word after it is their JSON."""


@dataclass
class Respelled:
    """What argparse gets, and what never reaches it: files, models, a last word that lacks its value."""

    words: list[Word]
    dotted: list[Dotted]
    config: list[int]
    models: list[int]
    unfinished: list[int]


def respell(arguments: Iterable[str]) -> Respelled:
    """Split a raw list the way vLLM does before argparse sees it."""
    words = [Word(text, index) for index, text in enumerate(arguments)]
    models = [word.index for word in words if _MODEL.fullmatch(word.text)]
    config = [word.index for word in words if word.text == "--config"]
    if config:
        words = [word for word in words if word.index not in (config[0], config[0] + 1)]
    rest, dotted, unfinished = _without_dotted(list(_rewritten(words)))
    for one in dotted:
        first = one.keys[0].index
        rest += Word(one.head, first, one), Word(json.dumps(one.merged), first)
    return Respelled(rest, dotted, config, models, unfinished)


def _rewritten(words: list[Word]) -> Iterator[Word]:
    for place, word in enumerate(words):
        text = word.text
        if text.startswith("--help="):
            yield Word("--help", word.index)
        elif text.startswith("--"):
            yield Word(dashed(text), word.index)
        elif text.startswith("-O") and text != "-O":
            yield Word("--optimization-level", word.index)
            yield Word(text[3:] if text[2] == "=" else text[2:], word.index)
        elif text == "-O" and place + 1 < len(words) and words[place + 1].text in ("0", "1", "2", "3"):
            yield Word("--optimization-level", word.index)
        else:
            yield word


def dashed(text: str) -> str:
    """`--max_model_len=a_b` as `--max-model-len=a_b`: only before the value and the first dot."""
    key, equals, value = text.partition("=")
    head, dot, path = key.partition(".")
    return head.replace("_", "-") + dot + path + equals + value


def _without_dotted(words: list[Word]) -> tuple[list[Word], list[Dotted], list[int]]:
    rest: list[Word] = []
    by_head: dict[str, Dotted] = {}
    unfinished: list[int] = []
    stream = iter(words)
    for word in stream:
        name, equals, text = word.text.partition("=")
        if not (name.startswith("-") and "." in name):
            rest.append(word)
            continue
        if not equals:
            following = next(stream, None)
            if following is None:
                unfinished.append(word.index)
                break
            text = following.text
        head, *_ = name.split(".")
        _take_key(by_head.setdefault(head, Dotted(head)), word.index, name, text)
    return rest, list(by_head.values()), unfinished


def _take_key(dotted: Dotted, index: int, name: str, text: str) -> None:
    appends = name.endswith("+")
    _, *path = name.removesuffix("+").split(".")
    value: Any = text.split(",") if appends else _json_or_text(text)
    dotted.keys.append(Key(index, tuple(path), text, value, appends))
    nested = value
    for key in reversed(path):
        nested = {key: nested}
    _merge(dotted.merged, nested)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        return convert_count(text)
    except ValueError:
        return text


def _merge(original: dict[str, Any], update: dict[str, Any]) -> None:
    for key, value in update.items():
        present = original.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge(present, value)
        elif isinstance(value, list) and isinstance(present, list):
            present += value
        else:
            original[key] = value
