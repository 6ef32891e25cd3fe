"""Balancing of experts (EPLB): what each of the two model runners takes."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator import versions
from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Edit, Fact, Set, rule
from kvpp_operator.rules.given import of_role
from kvpp_operator.rules.values import ABSENT, Place, dig, is_true, wins
from kvpp_operator.world import World

PLATFORM = "vLLM Ascend 0.28 to 0.30 platform.py, _validate_eplb_config"
OF_THE_NEW_RUNNER = ("load_collection_phase", "stair_config")
"""Keys of `eplb_config` that Model Runner V2 reads; it takes no other, and V1 takes neither."""
STAIR_SINCE = versions.BY_NAME["0.30.0rc1"]


def keys_of(role: ResolvedRole) -> Iterator[tuple[str, Place]]:
    """The keys of a role's `eplb_config` that reach the engine."""
    tree = dig(role.additional_config, ("eplb_config",))
    for key in tree if tree is not ABSENT and isinstance(tree, dict) else ():
        place = wins(role, "eplb_config", key)
        if place is not None:
            yield key, place


def dynamic_balancing(role: ResolvedRole) -> Place | None:
    """The key that switches dynamic EPLB on: itself, or a place to record expert maps."""
    place = wins(role, "eplb_config", "dynamic_eplb")
    if place is not None and is_true(place.value):
        return place
    recording = wins(role, "eplb_config", "expert_map_record_path")
    return recording if recording is not None and recording.value is not None else None


@rule(
    "SCHED008",
    severity="error",
    evidence="check",
    source="launch facts 11.1 (Dynamic EPLB): dynamic EPLB without DYNAMIC_EPLB=true in the environment asserts at start",
    message="Dynamic expert load balancing needs DYNAMIC_EPLB=true in the environment; without it the engine asserts "
    "at start.",
    fix="",
)
def dynamic_eplb_without_environment(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Dynamic EPLB without its environment variable."""
    for role in resolved.roles:
        place = dynamic_balancing(role)
        env = {variable.name: variable.value or "" for variable in role.env}
        is_set = env.get("DYNAMIC_EPLB", "").lower() in ("true", "1") or env.get("EXPERT_MAP_RECORD") == "true"
        if place is not None and not is_set:
            yield Fact(place.path, place.value, (variable_added(role, "DYNAMIC_EPLB", "true"),))


def variable_added(role: ResolvedRole, name: str, value: str) -> Edit:
    """The role's environment with one variable set."""
    names = [variable.name for variable in role.role.env]
    index = names.index(name) if name in names else len(names)
    return Set(f"{role.path}.env[{index}]", {"name": name, "value": value})


@rule(
    "SCHED009",
    severity="error",
    evidence="check",
    source=f"{PLATFORM}: with Model Runner V2 every key but load_collection_phase, and stair_config from 0.30, raises",
    message="This engine runs on Model Runner V2 ({why}), which does not take eplb_config.{key}; the engine does not start.",
    fix="",
)
def balancing_keys_of_the_old_runner(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Keys of the old runner's EPLB on Model Runner V2."""
    for role in resolved.roles:
        why = "prefillContext" if role.prefill_context > 1 else "the draft with pipeline"
        for key, place in keys_of(role) if role.runs_model_runner_v2 else ():
            is_taken = key in OF_THE_NEW_RUNNER and (key != "stair_config" or resolved.release >= STAIR_SINCE)
            if not is_taken:
                yield Fact(place.path, place.value, place.removal, {"why": why, "key": key})


@rule(
    "SCHED012",
    severity="error",
    evidence="check",
    source=f"{PLATFORM}: without Model Runner V2 load_collection_phase and stair_config raise",
    message="eplb_config.{key} is read by Model Runner V2 only, and this engine runs on V1; the engine does not start.",
    fix="or use eplb_heat_collection_stage",
)
def balancing_keys_of_the_new_runner(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Keys of the new runner's EPLB on Model Runner V1."""
    for role in resolved.roles:
        for key, place in () if role.runs_model_runner_v2 else keys_of(role):
            if key in OF_THE_NEW_RUNNER:
                yield Fact(place.path, place.value, place.removal, {"key": key})


@rule(
    "SCHED011",
    severity="error",
    evidence="check",
    source=f"{PLATFORM}: vLLM's own EPLB is supported by Model Runner V2 only",
    message="--enable-eplb runs on Model Runner V2 only, and this engine runs on V1; the engine does not start.",
    fix="or use eplb_config.dynamic_eplb in additionalConfig",
)
def balancing_flag_on_the_old_runner(resolved: Resolved, _: World) -> Iterator[Fact]:
    """The EPLB of vLLM itself on Model Runner V1."""
    for role in resolved.roles:
        for argument in () if role.runs_model_runner_v2 else of_role(role):
            if argument.flag == "--enable-eplb" and is_true(argument.value):
                yield Fact(argument.path, argument.flag, argument.removal)
