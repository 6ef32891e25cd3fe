"""Whether the engine's parser takes a word as the value of a flag: the same conversions, without the engine.

Source: vllm/engine/arg_utils.py (`_compute_kwargs` and the functions it picks), vllm/utils/argparse_utils.py
(`human_readable_int`), argparse `_get_values`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from kvpp_operator.engine_flags import types
from kvpp_operator.engine_flags.catalogue import Flag
from kvpp_operator.engine_flags.problems import Problem, closest

_SUFFIXED = re.compile(r"(\d+)(\.\d+)?([kKmMgGtT])")
_BARE_SUFFIXED = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_BRACED = re.compile(r"\s*{.*}\s*", re.DOTALL)
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}

_LORA: types.Type = {"fields": {"name": "any", "path": "any", "base_model_name": "any", "is_3d_lora_weight": "any"}}
"""vllm/entrypoints/openai/models/protocol.py, LoRAModulePath: a dataclass that converts nothing."""

_EXPECTED = {
    "int": "an integer", "float": "a number", "count": "an integer, also as 32k or 1M", "json": "JSON", "json|str": "JSON",
    "count|auto": "an integer, also as 32k or 1M, or auto", "object": "a JSON object", "lora": "name=path or a JSON object",
}  # fmt: skip


def problems(flag: Flag, word: str) -> Iterator[Problem]:
    """Everything that is wrong with one value; nothing when the parser takes it."""
    if flag.optional and word in ("", "None"):
        if flag.choices:  # the parser compares after the conversion, so its own choice "None" can't be chosen
            yield not_a_choice(flag, word)
        return
    try:
        value = convert(flag, word)
    except json.JSONDecodeError as error:
        yield Problem(
            "invalid-json", f"{flag.name}: {word!r} is not JSON ({error.msg} at character {error.pos + 1})", "JSON"
        )
        return
    except ValueError:
        expected = _EXPECTED[flag.kind]
        yield Problem("wrong-type", f"{flag.name} takes {expected}, not {word!r}", expected)
        return
    if flag.choices and value not in flag.choices:
        yield not_a_choice(flag, word)
    if flag.kind == "object":
        yield from misfits(flag, value)
    if flag.kind == "lora" and isinstance(value, dict):
        yield from _lora(flag, value)


def convert(flag: Flag, word: str) -> Any:
    """What the parser makes of the word. Raises ValueError (JSONDecodeError is one) where it refuses."""
    return _CONVERT[flag.kind](word)


def misfits(flag: Flag, value: Any, above: tuple[str, ...] = ()) -> Iterator[Problem]:
    """What is wrong inside the JSON of a flag; `above` restricts it to the places under one key."""
    for one in types.misfits(value, flag.type):
        if one.path[: len(above)] == above:
            yield _misfit(flag, one)


def expanded(text: str) -> str:
    """JSON with 80m, 4K outside of strings written out, as vLLM reads it (`_expand_json_human_readable_numbers`)."""
    parts = _QUOTED.split(text)
    parts[::2] = [_BARE_SUFFIXED.sub(lambda found: str(convert_count(found.group())), part) for part in parts[::2]]
    return "".join(parts)


def not_a_choice(flag: Flag, word: str) -> Problem:
    names = tuple(str(choice) for choice in flag.choices)
    expected = "one of " + ", ".join(names)
    return Problem("not-a-choice", f"{flag.name}: {word!r} is not {expected}", expected, closest(word, names))


def _misfit(flag: Flag, one: types.Misfit) -> Problem:
    place = ".".join((flag.name, *one.path))
    if one.known:
        key = one.path[-1]
        return Problem("unknown-key", f"{flag.name} has no key {'.'.join(one.path)!r}", closest=closest(key, one.known))
    return Problem("wrong-type", f"{place} takes {one.expected}, not {json.dumps(one.value)}", one.expected)


def convert_count(word: str) -> int:
    """`human_readable_int`: small letters are powers of 1000, capitals of 1024 and take no fraction."""
    word = word.strip()
    if not (found := _SUFFIXED.fullmatch(word)):
        return int(word)
    whole, fraction, letter = found.groups()
    if letter.islower():
        return int(float(whole + (fraction or "")) * 1000.0 ** _POWER[letter])
    if fraction:
        raise ValueError(word)
    return int(whole) * int(1024 ** _POWER[letter.lower()])


def _lora_value(word: str) -> Any:
    """LoRAParserAction (vllm/entrypoints/…/cli_args.py): the old form, or JSON."""
    if word in ("", "None") or ("=" in word and "," not in word):
        return word
    value = json.loads(word)
    if not isinstance(value, dict):
        raise ValueError(word)  # noqa: TRY004  (the caller's one kind of refusal)
    return value


def _lora(flag: Flag, value: dict[str, Any]) -> Iterator[Problem]:
    for one in types.misfits(value, _LORA):
        yield _misfit(flag, one)
    for name in ("name", "path"):
        if name not in value:
            yield Problem("missing-value", f"{flag.name}: the JSON has no {name!r}")


def _word(word: str) -> str:
    return word


def _count_or_auto(word: str) -> int:
    return -1 if word.strip() == "-1" or word.strip().lower() == "auto" else convert_count(word)


_CONVERT: dict[str, Callable[[str], Any]] = {
    "str": _word,
    "words": _word,
    "int": int,
    "float": float,
    "count": convert_count,
    "count|auto": _count_or_auto,
    "json": json.loads,
    "json|str": lambda word: json.loads(word) if _BRACED.fullmatch(word) else word,
    "object": lambda word: json.loads(expanded(word)),
    "lora": _lora_value,
    "lower_": lambda word: word.lower().replace("-", "_"),
}
