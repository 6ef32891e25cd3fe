"""Environment variables: what belongs to fields or to the operator, and what breaks the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvpp_operator.ownership import BY_ENV, Owned
from kvpp_operator.resolve import Resolved, ResolvedRole, Written
from kvpp_operator.rules import paths
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.fragments import containers
from kvpp_operator.world import World


@dataclass(frozen=True)
class Variable:
    """One environment variable as the user wrote it."""

    path: str
    """Of the entry, not of its name."""
    name: str
    value: Any
    """None when it comes from elsewhere (valueFrom)."""
    written: Written


def places(resolved: Resolved) -> Iterator[Written]:
    """Every place with raw settings once: `spec.engine`, then the roles."""
    seen: dict[str, Written] = {}
    for role in resolved.roles:
        seen |= {written.path: written for written in role.written}
    yield from seen.values()


def variables(written: Written) -> Iterator[Variable]:
    """`env` and the environment of the engine's container in `podTemplate`, workers too."""
    for index, variable in enumerate(written.env):
        value = variable.value if variable.value_from is None else None
        yield Variable(f"{written.path}.env[{index}]", variable.name, value, written)
    for path, container in containers(written):
        entries = container.get("env")
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
                yield Variable(f"{path}.env[{index}]", entry["name"], entry.get("value"), written)


def all_variables(resolved: Resolved) -> Iterator[Variable]:
    for written in places(resolved):
        yield from variables(written)


def of_role(role: ResolvedRole) -> Iterator[Variable]:
    for written in role.written:
        yield from variables(written)


def is_claimed(owned: Owned, resolved: Resolved) -> bool:
    source = resolved.spec.model.source
    return {
        "always": True,
        "pooling": resolved.spec.pooling is not None,
        "hostNetwork": resolved.spec.networking.host_network,
        "hub": source.hugging_face is not None or source.model_scope is not None,
    }[owned.when]


@rule(
    "ENV001",
    severity="error",
    evidence="guide",
    source="contract: environment that a field or the operator writes is refused (docs/flags.md)",
    message="{value} {owner}.",
    fix="",
)
def owned_variable(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An environment variable that a field or the operator owns."""
    for variable in all_variables(resolved):
        owned = BY_ENV.get(variable.name)
        if owned is not None and is_claimed(owned, resolved):
            place = owned.place(variable.written.path)
            owner = f"belongs to {place}" if place else "is set by the operator"
            because = f": {owned.why}" if owned.why else ""
            yield Fact(f"{variable.path}.name", variable.name, (Remove(variable.path),), {"owner": f"{owner}{because}"})


@rule(
    "ENV002",
    severity="error",
    evidence="check",
    source="launch facts 1.2 rule 2: VLLM_MLA_DISABLE turns use_mla off (vLLM 0.30 config/model.py)",
    message="VLLM_MLA_DISABLE takes the model off MLA, which KVPP needs and both sides of a hand-over must share.",
    fix="or set it to 0",
)
def mla_switched_off(resolved: Resolved, _: World) -> Iterator[Fact]:
    """MLA switched off by environment."""
    if not resolved.kvpp_roles:
        return
    for variable in all_variables(resolved):
        if variable.name == "VLLM_MLA_DISABLE" and variable.value != "0":
            yield Fact(f"{variable.path}.name", variable.name, (Remove(variable.path),))


@rule(
    "ENV003",
    severity="error",
    evidence="guide",
    source="Kubernetes API, EnvVar: valueFrom cannot be used when value is not empty",
    message="{value} has both a value and a valueFrom; the API server refuses the pod.",
    fix="",
)
def value_and_reference(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A variable with both value and valueFrom."""
    for written in places(resolved):
        for index, variable in enumerate(written.env):
            if variable.value and variable.value_from is not None:
                path = f"{written.path}.env[{index}]"
                yield Fact(path, variable.name, (Remove(f"{path}.value"),))


REPLACED = {
    "VLLM_ASCEND_ENABLE_MLAPO": "enable_mlapo",
    "VLLM_ASCEND_ENABLE_NZ": "weight_nz_mode",
    "VLLM_ASCEND_ENABLE_FUSED_MC2": "enable_fused_mc2",
    "VLLM_ASCEND_BALANCE_SCHEDULING": "scheduler_config.enable_balance_scheduling",
    "VLLM_ASCEND_ENABLE_BALANCE_SCHEDULING": "scheduler_config.enable_balance_scheduling",
}


@rule(
    "ENV004",
    severity="warning",
    evidence="guide",
    source="launch facts 7.1: these variables are no longer read, additional_config keys took their place",
    message="vLLM Ascend no longer reads {value}; additionalConfig.{key} took its place.",
    fix="",
)
def variable_without_effect(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A variable that the engine no longer reads."""
    for variable in all_variables(resolved):
        if variable.name in REPLACED:
            words = {"key": REPLACED[variable.name]}
            yield Fact(f"{variable.path}.name", variable.name, (Remove(variable.path),), words)


IMAGE_PATHS = ("LD_LIBRARY_PATH", "PYTHONPATH", "PATH", "LD_PRELOAD", "ASCEND_TOOLKIT_HOME")


@rule(
    "ENV005",
    severity="warning",
    evidence="guide",
    source="launch facts 11.1 (Entrypoint): a pod's LD_LIBRARY_PATH replaces the image's",
    message="{value} replaces what the image sets; the engine may no longer find CANN or its own libraries.",
    fix="",
)
def path_of_the_image_replaced(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A search path of the image replaced."""
    for variable in all_variables(resolved):
        if variable.name in IMAGE_PATHS:
            yield Fact(f"{variable.path}.name", variable.name, (Remove(variable.path),))


LAYOUT = ("VLLM_KV_CACHE_LAYOUT", "VLLM_MLA_DISABLE", "VLLM_ATTENTION_BACKEND", "VLLM_BATCH_INVARIANT")


@rule(
    "ENV006",
    severity="error",
    evidence="guide",
    source="launch facts 11.1 (Cache layouts): prefill and decode must have one cache layout, else every transfer fails",
    message="{name} changes the KV cache and differs between prefill and decode; every hand-over fails.",
    fix="or set it the same for both in spec.engine.env",
)
def layout_variable_on_one_side(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A variable of the cache layout that prefill and decode set differently."""
    prefill, decode = resolved.role("prefill"), resolved.role("decode")
    if prefill is None or decode is None:
        return
    sides = [{v.name: v for v in of_role(role) if v.name in LAYOUT} for role in (prefill, decode)]
    for name in LAYOUT:
        here, there = (side.get(name) for side in sides)
        if (here and here.value) != (there and there.value):
            own = [v for v in (here, there) if v is not None and v.written.path != "spec.engine"]
            kept = own or [v for v in (here, there) if v is not None]
            fix: tuple[Edit, ...] = tuple(Remove(v.path) for v in kept)
            yield Fact(f"{kept[0].path}.name", name, fix, {"name": name})


SECRETS = ("TOKEN", "PASSWORD", "SECRET", "API_KEY", "ACCESS_KEY")


@rule(
    "ENV007",
    severity="warning",
    evidence="guide",
    source="SECURITY.md, Secrets: they are given by reference only",
    message="{value} looks like a secret and stands in the spec as plain text, readable to all who may read the "
    "object.",
    fix="with the name and key of your Secret",
)
def secret_as_plain_text(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A secret as plain text."""
    for variable in all_variables(resolved):
        if variable.name in BY_ENV or not variable.value:
            continue
        if any(word in variable.name.upper() for word in SECRETS) and not str(variable.value).isdigit():
            reference = {"secretKeyRef": {"name": "secret", "key": variable.name}}
            fix = (Remove(f"{variable.path}.value"), Set(paths.below(variable.path, "valueFrom"), reference))
            yield Fact(f"{variable.path}.name", variable.name, fix)
