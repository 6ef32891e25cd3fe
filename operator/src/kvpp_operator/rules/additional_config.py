"""`additionalConfig`: keys, types, and what belongs to fields. Keys that forbid each other are in `schedulers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpp_operator.engine_flags import AdditionalProblem, check_additional
from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules import paths
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.environment import places
from kvpp_operator.rules.values import Place, is_false, is_true, wins
from kvpp_operator.world import World

SCHEMA = "launch facts 1.1: AscendConfig forbids extra keys; its fields in ascend_config.py of the release"
GROUP_SIZE = ("kvpp_size", "kvpp_config")
"""Keys of forks and of the engine's inside; the KVPP group follows TP x PCP."""

JUDGED_ELSEWHERE = (*GROUP_SIZE, "enable_kvpp")


def written(resolved: Resolved) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every `additionalConfig` of the spec once, with its path."""
    for place in places(resolved):
        yield f"{place.path}.additionalConfig", place.additional_config


def mistakes(resolved: Resolved, kind: str) -> Iterator[tuple[str, AdditionalProblem]]:
    """(path, problem) of everything of a kind that the release's configuration classes refuse or ignore."""
    for path, config in written(resolved):
        for one in check_additional(config, resolved.flags) if config else ():
            if one.problem.kind == kind and one.path[0] not in JUDGED_ELSEWHERE:
                yield paths.below(path, *(int(part) if part.isdigit() else part for part in one.path)), one


def meant(one: AdditionalProblem) -> str:
    """The known key that is closest to an unknown one, empty when none is."""
    return one.problem.closest[0] if one.problem.closest else ""


def renamed(path: str, one: AdditionalProblem, resolved: Resolved) -> tuple[Edit, ...]:
    """The unknown key under the name that was meant, unless that is there already or not the user's to set."""
    name = meant(one)
    root = path.partition(".additionalConfig")[0] + ".additionalConfig"
    beside: Any = dict(written(resolved))[root]
    for part in one.path[:-1]:
        beside = beside[part]
    if not name or name in beside or name in (*JUDGED_ELSEWHERE, *C8_FIELDS):
        return (Remove(path),)
    return (Set(paths.below(root, *one.path[:-1], name), one.value), Remove(path))


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
    for path, one in mistakes(resolved, "unknown-key"):
        if resolved.release.name != "latest" or meant(one):
            suggestion = f"; the closest is {meant(one)}" if meant(one) else ""
            yield Fact(path, one.value, renamed(path, one, resolved), {"key": one.path[-1], "suggestion": suggestion})


@rule(
    "ADD002",
    severity="warning",
    evidence="guide",
    since="latest",
    source=SCHEMA,
    message="No release up to 0.30.0rc2 knows the additional-config key {key}; where it is unknown, it stops the engine.",
    fix="",
)
def key_unknown_so_far(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An additional-config key that only the newest branch may have."""
    for path, one in mistakes(resolved, "unknown-key"):
        if not meant(one):
            yield Fact(path, one.value, (Remove(path),), {"key": one.path[-1]})


@rule(
    "ADD003",
    severity="error",
    evidence="check",
    source="seed guide, Configuration Parameters: the group size follows TP x PCP; launch facts 1.1: kvpp_size was a fork's",
    message="{key} is no setting: the size of the KVPP group follows TP x PCP.",
    fix="or change parallelism.tensor or prefillContext",
)
def size_of_the_group(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A size for the KVPP group."""
    for path, config in written(resolved):
        for name in GROUP_SIZE:
            if name in config:
                yield Fact(f"{path}.{name}", config[name], (Remove(f"{path}.{name}"),), {"key": name})


@rule(
    "ADD004",
    severity="error",
    evidence="check",
    source=f"{SCHEMA}; values pass pydantic's lax types there",
    message="The additional-config key {key} takes {expected}; the engine stops at {value}.",
    fix="",
)
def wrong_kind_of_value(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An additional-config value of the wrong type."""
    for path, one in mistakes(resolved, "wrong-type"):
        yield Fact(path, one.value, (Remove(path),), {"key": ".".join(one.path), "expected": one.problem.expected})


def switches(resolved: Resolved) -> Iterator[tuple[ResolvedRole, Place, bool]]:
    """Every `enable_kvpp` that counts, and whether it says what `spec.kvpp.enabled` says for the role."""
    for role in resolved.roles:
        place = wins(role, "enable_kvpp")
        if place is not None:
            yield role, place, is_true(place.value) if role.kvpp else is_false(place.value)


@rule(
    "ADD005",
    severity="error",
    evidence="guide",
    validation="ci",
    source="seed guide, PD Disaggregation: enable KVPP only on the prefill node; launch facts 1.2 rules 14 and 17",
    message="enable_kvpp {value} contradicts spec.kvpp.enabled for {role}: KVPP is on for unified and prefill when "
    "that field "
    "is true, and never on decode.",
    fix="and use spec.kvpp.enabled",
)
def kvpp_switched_by_hand(resolved: Resolved, _: World) -> Iterator[Fact]:
    """enable_kvpp that contradicts the field."""
    for role, place, agrees in switches(resolved):
        if not agrees:
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
    # One for both roles can't be right: what contradicts one of them is that rule's.
    contradicted = {place.path for _, place, agrees in switches(resolved) if not agrees}
    for _role, place, agrees in switches(resolved):
        if agrees and place.path not in contradicted:
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
    source="vLLM Ascend 0.28 to 0.30, init_ascend_config: keys that the engine computes are dropped from the user's config",
    message="{key} has no effect: the engine computes it and drops what the user says.",
    fix="",
)
def computed_by_the_engine(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Additional-config keys that the engine overwrites."""
    for path, one in mistakes(resolved, "unexpected-value"):
        yield Fact(path, one.value, (Remove(path),), {"key": one.path[-1]})
