"""`podTemplate`: fields that no pod has, and values of another type than the API server takes.

It keeps such fragments as they are until it is asked for a pod; then the workload stands there without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvpp_operator.catalogue.pod_spec import types
from kvpp_operator.quantity import quantity
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths, readings, shape
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.environment import places
from kvpp_operator.rules.fragments import specs
from kvpp_operator.rules.mistakes import given as kind_of
from kvpp_operator.rules.pod_template import KEYED_LISTS
from kvpp_operator.rules.pool_template import service_template
from kvpp_operator.world import World

KUBERNETES = "Kubernetes API, PodSpec (v1.36); contract, podTemplate"
SHAPES_ELSEWHERE = (*KEYED_LISTS, "env", "volumeMounts", "ports", "envFrom")
"""Lists whose form another rule judges."""


def last(path: str) -> str:
    return str(paths.split(path)[-1])


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


SCALARS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "text"),
    "integer": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "number": (is_number, "a number"),
    "truth": (lambda value: isinstance(value, bool), "true or false"),
    "quantity": (lambda value: quantity(value) is not None, "a quantity"),
    "any": (lambda _: True, "anything"),
}
Mistake = tuple[str, Any, str]
"""(path, value, what is wanted, or the name of the type that lacks the field)."""


def mistakes(path: str, value: Any, kind: str) -> Iterator[tuple[str, Mistake]]:
    """("type" or "field", mistake) of everything below a place. Null takes a field of ours away, wherever it stands."""
    if value is None:
        return
    if kind in SCALARS:
        is_right, wanted = SCALARS[kind]
        if not is_right(value):
            yield "type", (path, value, wanted)
    elif kind.startswith("["):
        yield from in_list(path, value, kind[1:-1])
    else:
        yield from in_map(path, value, kind)


def in_list(path: str, value: Any, kind: str) -> Iterator[tuple[str, Mistake]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from mistakes(f"{path}[{index}]", item, kind)
    elif last(path) not in SHAPES_ELSEWHERE:
        yield "type", (path, value, "a list")


def in_map(path: str, value: Any, kind: str) -> Iterator[tuple[str, Mistake]]:
    if not isinstance(value, Mapping):
        if not path.endswith("]"):  # an entry of a list that is judged elsewhere
            yield "type", (path, value, "a map")
        return
    known = None if kind.startswith("{") else types()[kind]
    for name, item in value.items():
        place = paths.below(path, name)
        if known is None:
            yield from mistakes(place, item, kind[1:-1])
        elif name in known:
            yield from mistakes(place, item, known[name])
        else:
            yield "field", (place, item, kind)


def found(resolved: Resolved, what: str) -> Iterator[Mistake]:
    for written in (*places(resolved), *service_template(resolved)):
        for path, spec in specs(written):
            yield from (mistake for sort, mistake in mistakes(path, spec, "PodSpec") if sort == what)


@rule(
    "POD010",
    severity="error",
    evidence="guide",
    source=KUBERNETES,
    message="{field} of a pod must be {wanted}, not {given}; the API server refuses the pod.",
    fix="{advice}",
)
def value_of_another_type(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A value of the wrong type in a pod template."""
    for path, value, wanted in found(resolved, "type"):
        converter = CONVERTERS.get(wanted)
        meant = converter(value) if converter else None
        fix: Edit = Remove(path) if meant is None else Set(path, meant)
        advice = "in quotes, or YAML reads something else" if isinstance(meant, str) and wanted == "text" else ""
        given = f"{value!r}" if wanted == "a quantity" and isinstance(value, str) else kind_of(value)
        yield Fact(path, value, (fix,), {"field": last(path), "wanted": wanted, "given": given, "advice": advice})


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **readings.CONVERTERS,
    "a quantity": lambda value: readings.quantity(value) if isinstance(value, str) else None,
}


@rule(
    "POD011",
    severity="error",
    evidence="guide",
    source=KUBERNETES,
    message="{kind} of a pod has no field {field}; the closest is {meant}. The API server drops it, or refuses the pod.",
    fix="",
)
def field_that_no_pod_has(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A field of a pod template that is a slip of another. What is like none may be newer than we are."""
    for path, value, kind in found(resolved, "field"):
        name = last(path)
        meant = shape.closest(name.replace("_", ""), types()[kind], cutoff=0.8)
        if meant is not None:
            place = paths.join((*paths.split(path)[:-1], meant))
            words = {"field": name, "kind": kind, "meant": meant}
            yield Fact(path, value, (Set(place, value), Remove(path)), words)
