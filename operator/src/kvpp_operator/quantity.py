"""Kubernetes quantities by their value."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES: dict[str | None, Fraction] = {
    None: Fraction(1),
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def quantity(value: Any) -> Fraction | None:
    """Value of a Kubernetes quantity (`500m`, `0.5`, `64Gi`, `1e3`, 8), or `None` if it is none."""
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix])
