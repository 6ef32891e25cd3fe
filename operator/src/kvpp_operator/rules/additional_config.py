"""`additionalConfig`: keys, types, and what belongs to fields. Keys that forbid each other are in `schedulers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths, shape
from kvpp_operator.rules.additional_keys import DERIVED, KEYS, Key, known
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.values import fits, is_false, is_true, wins
from kvpp_operator.world import World

SCHEMA = "launch facts 1.1: AscendConfig forbids extra keys; its fields in ascend_config.py of the release"
GROUP_SIZE = ("kvpp_size", "kvpp_config")
"""Keys of forks and of the engine's inside; the KVPP group follows TP x PCP."""


def written(resolved: Resolved) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every `additionalConfig` of the spec once, with its path."""
    seen: dict[str, Mapping[str, Any]] = {}
    for role in resolved.roles:
        seen |= {place.path: place.additional_config for place in role.written}
    for path, config in seen.items():
        yield f"{path}.additionalConfig", config


def unknown(resolved: Resolved) -> Iterator[tuple[str, str, Any, str | None]]:
    """(path of the map, key, value, closest known key) of each key that the release does not have."""
    for path, config in written(resolved):
        yield from unknown_in(path, config, known(resolved.release), resolved)


def unknown_in(path: str, config: Mapping[str, Any], keys: Mapping[str, Key], resolved: Resolved) -> Iterator[Any]:
    for name, value in config.items():
        if name not in keys:
            if not (path.endswith("additionalConfig") and name in GROUP_SIZE):
                yield path, name, value, shape.closest(name, [key for key in keys if key not in DERIVED])
        elif (inner := keys[name].inner) is not None and isinstance(value, dict):
            yield from unknown_in(paths.below(path, name), value, known(resolved.release, inner), resolved)


def renamed(path: str, name: str, value: Any, meant: str | None, config: Mapping[str, Any]) -> tuple[Edit, ...]:
    place = paths.below(path, name)
    if meant is None or meant in config or meant == "enable_kvpp":
        return (Remove(place),)
    return (Set(paths.below(path, meant), value), Remove(place))


@rule(
    "ADD001",
    severity="error",
    evidence="check",
    source=SCHEMA,
    message="vLLM Ascend {release} knows no additional-config key {key}{suggestion}; an unknown key stops the engine.",
    fix="",
)
def unknown_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An additional-config key that the release does not have."""
    configs = dict(written(resolved))
    for path, name, value, meant in unknown(resolved):
        if resolved.release.name != "latest" or meant is not None:
            suggestion = f"; the closest is {meant}" if meant else ""
            fix = renamed(path, name, value, meant, configs.get(path, {}))
            yield Fact(paths.below(path, name), value, fix, {"key": name, "suggestion": suggestion})


@rule(
    "ADD002",
    severity="warning",
    evidence="guide",
    since="latest",
    source=SCHEMA,
    message="No release up to 0.30.0rc2 knows the additional-config key {key}; where it is unknown, it stops the "
    "engine.",
    fix="",
)
def key_unknown_so_far(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An additional-config key that only the newest branch may have."""
    for path, name, value, meant in unknown(resolved):
        if meant is None:
            place = paths.below(path, name)
            yield Fact(place, value, (Remove(place),), {"key": name})


@rule(
    "ADD003",
    severity="error",
    evidence="check",
    source="seed guide, Configuration Parameters: the group size follows TP x PCP; launch facts 1.1: kvpp_size was a "
    "fork's",
    message="{key} is no setting: the size of the KVPP group follows TP x PCP.",
    fix="or change parallelism.tensor or prefillContext",
)
def size_of_the_group(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A size for the KVPP group."""
    for path, config in written(resolved):
        for name in GROUP_SIZE:
            if name in config:
                yield Fact(f"{path}.{name}", config[name], (Remove(f"{path}.{name}"),), {"key": name})


def expected(kind: Any) -> str:
    """A type in words: `Literal["a", "b"]` → "one of a, b"."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a map",
    }
    for part in (kind, get_origin(kind), *get_args(kind)):
        if part in words and isinstance(part, type):
            bounds = [
                f"{name} {getattr(limit, attribute)}"
                for limit in limits(kind)
                for name, attribute in BOUNDS
                if hasattr(limit, attribute)
            ]
            return " ".join([words[part], *bounds])
    return "another kind of value"


BOUNDS = (("from", "ge"), ("above", "gt"), ("up to", "le"), ("below", "lt"))


def limits(kind: Any) -> list[Any]:
    return [limit for field in get_args(kind)[1:] for limit in getattr(field, "metadata", [])]


@rule(
    "ADD004",
    severity="error",
    evidence="check",
    source=f"{SCHEMA}; values pass pydantic's lax types there",
    message="The additional-config key {key} must be {expected}; the engine stops at {value}.",
    fix="",
)
def wrong_kind_of_value(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An additional-config value of the wrong type."""
    for path, config in written(resolved):
        yield from wrong_values(path, config, known(resolved.release), resolved)


def wrong_values(path: str, config: Mapping[str, Any], keys: Mapping[str, Key], resolved: Resolved) -> Iterator[Fact]:
    for name, value in config.items():
        key = keys.get(name)
        if key is None or name == "enable_kvpp":
            continue
        place = paths.below(path, name)
        if not fits(value, key.kind):
            yield Fact(place, value, (Remove(place),), {"key": name, "expected": expected(key.kind)})
        elif key.inner is not None:
            yield from wrong_values(place, value, known(resolved.release, key.inner), resolved)


@rule(
    "ADD005",
    severity="error",
    evidence="check",
    validation="ci",
    source="seed guide, PD Disaggregation: enable KVPP only on the prefill node; launch facts 1.2 rules 14 and 17",
    message="enable_kvpp {value} contradicts spec.kvpp.enabled for {role}: KVPP is on for unified and prefill when "
    "that field "
    "is true, and never on decode.",
    fix="and use spec.kvpp.enabled",
)
def kvpp_switched_by_hand(resolved: Resolved, _: World) -> Iterator[Fact]:
    """enable_kvpp that contradicts the field."""
    for role in resolved.roles:
        place = wins(role, "enable_kvpp")
        if place is not None and not (is_true(place.value) if role.kvpp else is_false(place.value)):
            yield Fact(place.path, place.value, place.removal, {"role": role.name})


@rule(
    "ADD006",
    severity="warning",
    evidence="guide",
    source="contract, kvpp.enabled; seed guide, Usage: enable_kvpp is merged into the additional config",
    message="enable_kvpp has no effect here: spec.kvpp.enabled says the same, and the operator writes the key.",
    fix="",
)
def kvpp_said_twice(resolved: Resolved, _: World) -> Iterator[Fact]:
    """enable_kvpp that says what the field says."""
    for role in resolved.roles:
        place = wins(role, "enable_kvpp")
        if place is not None and (is_true(place.value) if role.kvpp else is_false(place.value)):
            yield Fact(place.path, place.value, place.removal)


C8_FIELDS = {"enable_sparse_sfa_c8": "spec.kvCache.main", "enable_sparse_li_c8": "spec.kvCache.indexer"}


@rule(
    "ADD007",
    severity="error",
    evidence="guide",
    source="launch facts 7.2: these keys count up to 0.28.0rc1 only, later releases overwrite them silently",
    message="{key} belongs to {field}, which the operator writes as the key or the flag of the engine's release.",
    fix="",
)
def cache_layout_by_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """C8 cache layouts by additional-config key."""
    for path, config in written(resolved):
        for name, field in C8_FIELDS.items():
            if name in config:
                layout: tuple[Edit, ...] = (Set(field, "C8"),) if is_true(config[name]) else ()
                yield Fact(
                    f"{path}.{name}", config[name], (Remove(f"{path}.{name}"), *layout), {"key": name, "field": field}
                )


@rule(
    "ADD008",
    severity="warning",
    evidence="guide",
    source="vLLM Ascend 0.28 to 0.30, init_ascend_config: keys that the engine computes are dropped from the user's "
    "config",
    message="{key} has no effect: the engine computes it and drops what the user says.",
    fix="",
)
def computed_by_the_engine(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Additional-config keys that the engine overwrites."""
    for path, config in written(resolved):
        for name in DERIVED:
            if name in config and KEYS[name].holds_for(resolved.release):
                yield Fact(f"{path}.{name}", config[name], (Remove(f"{path}.{name}"),), {"key": name})
