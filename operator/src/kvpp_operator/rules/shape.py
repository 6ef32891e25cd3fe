"""What the model says about a place: its field, the model that stands there, names and examples for advice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from kvpp_operator.api.base import Model
from kvpp_operator.api.v1alpha1 import API_VERSION, KIND, KVPPDeployment

SOURCE = {"persistentVolumeClaim": {"claimName": "weights"}}
SPEC = {
    "model": {"profile": "GLM-5.2", "source": SOURCE},
    "engine": {"version": "0.30.0rc2"},
    "accelerator": {"chip": "950DT"},
    "unified": {"parallelism": {"tensor": 8}},
}
EXAMPLES: dict[str, Any] = {
    "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "example"}, "spec": SPEC,
    "model": SPEC["model"], "engine": SPEC["engine"], "accelerator": SPEC["accelerator"], "source": SOURCE,
    "version": "0.30.0rc2", "profile": "GLM-5.2", "chip": "950DT", "attention": "MLA", "layers": 61, "claimName": "weights",
    "path": "/mnt/models", "repo": "organisation/name", "reference": "registry.example/weights:1", "name": "example",
    "key": "token", "namespace": "default", "method": "MTP", "tokens": 1, "backend": "Memcache", "address": "pool.example:5000",
    "first": 22000, "last": 29999, "digest": f"sha256:{'0' * 64}",
}  # fmt: skip
"""A legal value for each required field, and for those whose pattern is hard to guess."""

USUAL: dict[str, Any] = {"tensor": 8}
"""What to propose where the default of an optional field would bring another error: a KVPP group needs two ranks."""


def models_in(annotation: Any) -> Iterable[type[Model]]:
    """Model classes named in an annotation, through Optional, Annotated, list and dict."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def fields(model: type[Model]) -> dict[str, FieldInfo]:
    """Fields by their wire name."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def field_at(parts: tuple[str | int, ...]) -> FieldInfo | None:
    """The field that a place belongs to, None for a place that the model does not know."""
    model: type[Model] | None = KVPPDeployment
    info: FieldInfo | None = None
    for part in parts:
        if isinstance(part, int):
            continue
        info = fields(model).get(part) if model is not None else None
        if info is None:
            return None
        model = next(iter(models_in(info.annotation)), None)
    return info


def names_at(parts: tuple[str | int, ...]) -> tuple[str, ...]:
    """Wire names of the fields that may stand in the map at a place."""
    if not parts:
        return tuple(fields(KVPPDeployment))
    info = field_at(parts)
    found = next(iter(models_in(info.annotation)), None) if info is not None else None
    return tuple(fields(found)) if found is not None else ()


def is_required(parts: tuple[str | int, ...]) -> bool:
    """Whether taking this place away would be an error: a required field; list entries never are."""
    info = field_at(parts) if parts and isinstance(parts[-1], str) else None
    return info is not None and info.is_required()


def is_list(parts: tuple[str | int, ...]) -> bool:
    info = field_at(parts)
    return info is not None and any(get_origin(kind) is list for kind in (info.annotation, *get_args(info.annotation)))


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that the user may have meant; case does not count."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, cutoff)
    return by_lower[found[0]] if found else None
