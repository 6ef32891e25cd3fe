"""What every part of the custom resource is made of: the strict base model and the scalar types.

Bounds live in the types, so the CRD's schema and the parser refuse the same values.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Frozen, camelCase on the wire, strict like the API server: "8" is not 8, and an unknown field is an error."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
    )


def extension(**words: Any) -> dict[str, Any]:
    """`extension(list_type="set")` → `{"x-kubernetes-list-type": "set"}` for a field's json_schema_extra."""
    return {f"x-kubernetes-{word.replace('_', '-')}": value for word, value in words.items()}


NAMED_LIST = extension(list_type="map", list_map_keys=["name"])
"""A list that server-side apply merges by `name`; the API server refuses a name given twice."""

Size = Annotated[int, Field(ge=1, le=1024)]
"""A parallel size: a number of ranks."""

Port = Annotated[int, Field(ge=1024, le=65535)]

Text = Annotated[str, Field(min_length=1, max_length=1024)]
"""Free text: model names and arguments may hold any Unicode."""

LINE = r"^[^\x00-\x1f\x7f]*$"
"""One line of any Unicode, without control characters."""

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=LINE)]
"""The name of an object or a key; what it refers to is checked where it is used."""

Path = Annotated[str, Field(min_length=1, max_length=4096, pattern=LINE)]

Argument = Annotated[str, Field(max_length=65536)]
"""One command-line argument, JSON included."""

QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
Quantity = Annotated[str, Field(pattern=QUANTITY, max_length=32)]
"""A Kubernetes quantity, not negative: `64Gi`, `1.5Gi`, `1000m`."""

Duration = Annotated[str, Field(pattern=r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$", min_length=2, max_length=16)]
"""`45m`, `1h30m`, `90s`."""

JsonObject = dict[str, Any]
"""Kept byte-true: nested maps, strings that look like booleans, anything JSON can say."""

PreservedObject = Annotated[JsonObject, Field(json_schema_extra=extension(preserve_unknown_fields=True))]

SUFFIXES = {
    "": 1, "m": 1e-3, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


def quantity_bytes(text: str) -> int:
    """Bytes of a quantity that matched `QUANTITY`, rounded up as Kubernetes does."""
    digits = text.rstrip("mkMGTPKi")
    exact = float(digits) * SUFFIXES[text[len(digits) :]]
    return int(exact) + (exact > int(exact))


def duration_seconds(text: str) -> int:
    """Seconds of a `Duration`: `1h30m` → 5400."""
    total, number = 0, ""
    for letter in text:
        if letter.isdigit():
            number += letter
        else:
            total += int(number) * {"h": 3600, "m": 60, "s": 1}[letter]
            number = ""
    return total
