"""Where a field that does not exist belongs: a slip of the pen, a field of another place, an engine flag in camel case."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from kvpp_operator.api.base import Model
from kvpp_operator.api.v1alpha1 import ROLES, KVPPDeployment
from kvpp_operator.ownership import BY_FLAG, OWNED, ROLE, Owned
from kvpp_operator.rules import paths, shape

Parts = tuple[str | int, ...]

MOST_PLACES = 3
"""A name that stands in more places than that says nothing about what was meant."""


@dataclass(frozen=True)
class Home:
    """Where the field may belong, and whether the value can be moved there as it is."""

    places: tuple[str, ...]
    can_move: bool


def folded(name: str) -> str:
    """`max_num_seqs`, `max-num-seqs` and `maxNumSeqs` are one word."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def home(document: Any, place: Parts, value: Any) -> Home | None:
    """Another place of the resource that this field belongs to."""
    found = tuple(dict.fromkeys((*elsewhere(document, place), *by_flag(document, place))))
    if not found or len(found) > MOST_PLACES:
        return None
    return Home(tuple(map(paths.join, found)), len(found) == 1 and can_take(document, found[0], value))


def elsewhere(document: Any, place: Parts) -> Iterator[Parts]:
    """Fields of the same name; of roles only those that are meant."""
    for found in index().get(folded(str(place[-1])), ()):
        if found[1] not in ROLES or found[1] in roles_meant(document, place):
            yield found


def by_flag(document: Any, place: Parts) -> Iterator[Parts]:
    """The field that owns the engine's flag or additional-config key of that name."""
    owned = by_word().get(folded(str(place[-1])))
    if owned is None or not owned.field:
        return
    if not owned.field.startswith(ROLE):
        yield paths.split(owned.field)
        return
    for role in roles_meant(document, place):
        yield paths.split(owned.field.replace(ROLE, f"spec.{role}"))


def roles_meant(document: Any, place: Parts) -> tuple[str, ...]:
    """The role that the place lies in, else those that the document has."""
    if len(place) > 1 and place[1] in ROLES:
        return (str(place[1]),)
    spec = document.get("spec") if isinstance(document, dict) else None
    return tuple(role for role in ROLES if isinstance(spec, dict) and isinstance(spec.get(role), dict))


@cache
def by_word() -> dict[str, Owned]:
    keys = {folded(key): owned for owned in OWNED for key in owned.keys}
    return {**{folded(flag): owned for flag, owned in BY_FLAG.items()}, **keys}


@cache
def index() -> dict[str, tuple[Parts, ...]]:
    """Places of the spec by the folded name of their field; entries of lists are left out."""
    found: dict[str, list[Parts]] = {}
    for place in walk(KVPPDeployment, ()):
        if place[0] == "spec" and len(place) > 1:
            found.setdefault(folded(str(place[-1])), []).append(place)
    return {name: tuple(places) for name, places in found.items()}


def walk(model: type[Model], above: Parts) -> Iterator[Parts]:
    for name, info in shape.fields(model).items():
        place = (*above, name)
        yield place
        below = None if shape.is_list(place) else next(iter(shape.models_in(info.annotation)), None)
        if below is not None:
            yield from walk(below, place)


def can_take(document: Any, place: Parts, value: Any) -> bool:
    """Whether the value may stand there: nothing does yet, it has the type, and no map made on the way lacks a field."""
    if paths.lookup(document, paths.join(place)) is not None or not fits(place, value):
        return False
    for depth in range(1, len(place)):
        made = paths.lookup(document, paths.join(place[:depth])) is None
        if made and any(
            shape.is_required((*place[:depth], name)) for name in shape.names_at(place[:depth]) if name != place[depth]
        ):
            return False
    return True


def fits(place: Parts, value: Any) -> bool:
    """Whether the field at a place takes a value by itself."""
    adapter = adapter_of(tuple(part for part in place if isinstance(part, str)))
    if adapter is None:
        return False
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


@cache
def adapter_of(names: tuple[str, ...]) -> TypeAdapter[Any] | None:
    """The type of a field with its bounds."""
    info = shape.field_at(names)
    kind: Any = None if info is None else info.annotation
    return None if info is None else TypeAdapter(Annotated[kind, *info.metadata] if info.metadata else kind)
