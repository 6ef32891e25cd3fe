"""A value of another form or type than its field wants, as people write it → the same thing as the field wants it, where it
can be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgtp]?)(i?)b?")
DURATION = re.compile(
    r"(?:([0-9]+)d(?:ays?)?)?(?:([0-9]+)h(?:(?:ou)?rs?)?)?(?:([0-9]+)m(?:in(?:ute)?s?)?)?(?:([0-9]+)s(?:ec(?:ond)?s?)?)?"
)


def quantity(text: str) -> str | None:
    """`32GB` → `32G`, `64 gib` → `64Gi`."""
    found = QUANTITY.fullmatch(bare(text))
    if found is None:
        return None
    amount, prefix, binary = found.groups()
    if binary and not prefix:
        return None
    # Kubernetes writes the decimal kilo small and every other prefix large.
    return f"{amount}{prefix if prefix == 'k' and not binary else prefix.upper()}{binary}"


def duration(text: str) -> str | None:
    """`45 min` → `45m`, `1d 2h` → `26h`, `300` → `300s`: numbers alone are seconds to the engine."""
    if re.fullmatch("[0-9]+", bare(text)):
        return f"{bare(text)}s"
    found = DURATION.fullmatch(bare(text))
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    parts = {"h": 24 * days + hours, "m": minutes, "s": seconds}
    return "".join(f"{number}{unit}" for unit, number in parts.items() if number) or None


def repository(text: str) -> str:
    """A hub's web address → `organisation/name`."""
    return "/".join(re.sub(r"^\w+://[^/]+/(models/)?", "", text).split("/")[:2])


def version(text: str) -> str:
    """`v0.30.0rc2-a3`, as a release's tag or its image's says it → `0.30.0rc2`."""
    return re.sub(r"-.*", "", bare(text).removeprefix("v"))


SOCS = {r"910(b[1-4]?)?": "A2", r"910(c|93(91|92|72|62|82)?)": "A3", r"a5|950": "950DT"}
"""Names of the silicon, as `npu-smi` and CANN print them, and image suffixes → the chip."""


def chip(text: str) -> str | None:
    """`Ascend910_9391` → `A3`."""
    name = re.sub(r"^(ascend|atlas|npu|-)*", "", bare(text))
    return next((found for pattern, found in SOCS.items() if re.fullmatch(pattern, name)), None)


def bare(text: str) -> str:
    return re.sub(r"[\s,_]+", "", text.lower())


READINGS: dict[str, Callable[[str], str | None]] = {
    "hugePages": quantity, "memoryPerDevice": quantity, "sharedMemory": quantity,
    "startupTimeout": duration, "shutdownTimeout": duration,
    "repo": repository, "version": version, "chip": chip,
}  # fmt: skip
"""By the field's name. What is read must still fit the field."""


def to_integer(value: Any) -> int | None:
    text = str(value) if isinstance(value, (str, float)) else ""
    if re.fullmatch(r"-?[0-9]{1,15}(\.0*)?", text):
        return int(float(text))
    return int(text, 0) if re.fullmatch(r"0(o[0-7]{1,15}|x[0-9a-fA-F]{1,12}|b[01]{1,48})", text) else None


def to_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else None


def to_truth(value: Any) -> bool | None:
    truth = {"true": True, "yes": True, "on": True, "y": True, "false": False, "no": False, "off": False, "n": False}
    return truth.get(value.lower()) if isinstance(value, str) else None


def to_number(value: Any) -> float | None:
    return float(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]*)?", value) else None


def to_list(value: Any) -> list[Any] | None:
    """Numbers with commas between them, or the words of a command line."""
    if not isinstance(value, str):
        return None
    numbers = re.fullmatch(r"\s*\[?\s*([0-9]{1,15}(?:[,\s]+[0-9]{1,15})*)\s*\]?\s*", value)
    return [int(number) for number in re.split(r"[,\s]+", numbers[1])] if numbers else value.split()


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "a whole number": to_integer, "text": to_text, "true or false": to_truth, "a number": to_number, "a list": to_list,
}  # fmt: skip
"""By what is wanted, in the words of a finding."""
