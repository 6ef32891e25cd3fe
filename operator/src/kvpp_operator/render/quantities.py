"""Quantities of a pod in one notation, so that `1000m` and `1`, `1.5Gi` and `1536Mi` make the same revision.

The API server does the same to what it stores, but keeps apart what was written as a power of 1000 and of 1024; here only the
value counts.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvpp_operator.quantity import quantity

RESOURCES = ("limits", "requests", "overhead")
SIZES = ("sizeLimit", "divisor")
NAMES_OF_USERS = ("labels", "annotations", "matchLabels", "nodeSelector", "data")
"""Maps whose keys are not the API's."""

IN_BYTES = ("memory", "storage", "ephemeral-storage", "sizeLimit")
BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
SMALL = ((1, ""), (1_000, "m"), (1_000_000, "u"), (1_000_000_000, "n"))


def canonical(node: Any, key: str = "") -> Any:
    """The tree with every quantity in it rewritten; what is no quantity stays, and the server says so."""
    if isinstance(node, dict):
        if key in NAMES_OF_USERS:
            return node
        if key in RESOURCES:
            return {name: written(name, amount) for name, amount in node.items()}
        return {name: canonical(item, name) for name, item in node.items()}
    if isinstance(node, list):
        return [canonical(item) for item in node]
    return written(key, node) if key in SIZES else node


def written(name: str, amount: Any) -> Any:
    value = quantity(amount) if isinstance(amount, str | int | float) else None
    if value is None:
        return amount
    in_bytes = name in IN_BYTES or name.startswith("hugepages-") or (isinstance(amount, str) and amount.endswith("i"))
    return binary(value) if in_bytes and value.denominator == 1 else decimal(value)


def binary(value: Fraction) -> str:
    """Bytes in the largest unit that leaves no remainder."""
    for power, unit in zip(range(len(BINARY), 0, -1), BINARY, strict=True):
        if value and not value % 1024**power:
            return f"{value // 1024**power}{unit}"
    return str(value)


def decimal(value: Fraction) -> str:
    """A number, or thousandths and smaller where it is none; beyond a billionth it is rounded up as the server does."""
    for factor, unit in SMALL:
        if (value * factor).denominator == 1:
            return f"{value * factor}{unit}"
    return f"{-(-value.numerator * 1_000_000_000 // value.denominator)}n"
