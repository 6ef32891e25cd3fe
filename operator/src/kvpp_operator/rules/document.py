"""A document as it was read → the same as plain JSON, and the places that JSON or an API server can't take.

YAML can say more than JSON: dates, sets, bytes, cycles. `kubectl` turns keys that are numbers into text and leaves dates
text; so do we, so that the same file means the same at every door.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

DEEPEST = 64
"""Levels of nesting; a PodSpec fragment needs about ten."""

MOST_VALUES = 200_000
"""A custom resource of 256 KiB holds fewer; YAML aliases can unfold to billions."""


@dataclass
class Cleaning:
    """One walk over a document: what could not be kept, and how many values were met."""

    refused: list[tuple[tuple[str | int, ...], Any, str]] = field(default_factory=list)
    """(place, value, reason)"""
    values: int = 0
    open: set[int] = field(default_factory=set)

    def refuse(self, place: tuple[str | int, ...], value: Any, reason: str) -> None:
        self.refused.append((place, value, reason))

    def clean(self, value: Any, place: tuple[str | int, ...]) -> Any:
        """The JSON form of a value; None stands where something was refused."""
        self.values += 1
        if isinstance(value, (dict, list)):
            return self.container(value, place)
        reason = scalar_refusal(value)
        if reason:
            self.refuse(place, value, reason)
            return None
        return str(value) if is_date(value) else value

    def container(self, value: dict[Any, Any] | list[Any], place: tuple[str | int, ...]) -> Any:
        if id(value) in self.open:
            return self.refuse(place, "an alias of itself", "it contains itself")
        if len(place) >= DEEPEST:
            return self.refuse(place, "…", f"it is nested deeper than {DEEPEST} levels")
        if self.values + len(value) > MOST_VALUES:
            return self.refuse(place, "…", f"the document holds more than {MOST_VALUES} values")
        self.open.add(id(value))
        cleaned = self.mapping(value, place) if isinstance(value, dict) else self.sequence(value, place)
        self.open.discard(id(value))
        return cleaned

    def mapping(self, value: dict[Any, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            text = key_text(key)
            if text is None:
                self.refuse((*place, str(key)), key, "a key must be text")
            elif scalar_refusal(text):
                self.refuse((*place, text.encode("utf-8", "replace").decode()), key, "a key must be valid Unicode")
            else:
                cleaned[text] = self.clean(item, (*place, text))
        return cleaned

    def sequence(self, value: list[Any], place: tuple[str | int, ...]) -> list[Any]:
        return [self.clean(item, (*place, index)) for index, item in enumerate(value)]


def key_text(key: Any) -> str | None:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int) and abs(key) < 2**63:
        return str(key)
    return str(key) if is_date(key) else None


def is_date(value: Any) -> bool:
    """A YAML date without a time: its text can be had back exactly."""
    return type(value).__name__ == "date"


def scalar_refusal(value: Any) -> str:
    """Why JSON, or an API server, can't take this value; empty when it can."""
    if value is None or isinstance(value, bool) or is_date(value):
        return ""
    if isinstance(value, str):
        return "" if is_unicode(value) else "it is not valid Unicode"
    if isinstance(value, int):
        return "" if abs(value) < 2**63 else "it does not fit 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "it is not a finite number"
    return f"JSON has no such type ({type(value).__name__}); quote it to make it text"


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
