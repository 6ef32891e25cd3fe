"""Speculative decoding: methods by release, draft models, prefill and decode together."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Cel, Fact, Remove, rule
from kvpp_operator.world import World

SEED = "seed guide, Supported Features, Speculative decoding"
METHODS = "launch facts 1.2 rule 7 and 1.3, row spec methods: KVPPConfig of the release"
SEPARATE = ("DSpark", "Eagle3", "DFlash")
"""Methods whose draft is a model of its own."""


def drafting(roles: tuple[ResolvedRole, ...], *methods: str) -> Iterator[tuple[ResolvedRole, str]]:
    """Roles that use one of the methods, and the path of the method."""
    for role in roles:
        if role.speculative is not None and role.speculative.method in methods:
            yield role, f"{role.path}.speculative.method"


@rule(
    "SPEC001",
    severity="error",
    evidence="check",
    until="0.29.0rc1",
    source=METHODS,
    message="vLLM Ascend {release} takes only MTP with KVPP; DSpark with KVPP came with {first}.",
    fix="or set engine.version to {first} or newer",
)
def dspark_before_its_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DSpark with KVPP on a release that takes MTP only."""
    for role, path in drafting(resolved.kvpp_roles, "DSpark"):
        yield Fact(path, "DSpark", (Remove(f"{role.path}.speculative"),))


@rule(
    "SPEC002",
    severity="error",
    evidence="check",
    until="0.30.0rc2",
    source=METHODS,
    message="vLLM Ascend {release} does not take {value} with KVPP; the first that does is {first}.",
    fix="or set engine.version to {first}",
)
def eagle3_before_its_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Eagle3 or DFlash with KVPP on a release that takes neither."""
    for role, path in drafting(resolved.kvpp_roles, "Eagle3", "DFlash"):
        yield Fact(path, role.speculative and role.speculative.method, (Remove(f"{role.path}.speculative"),))


@rule(
    "SPEC003",
    severity="warning",
    evidence="guide",
    since="latest",
    source=f"{SEED}: names MTP, DSpark and Eagle3; launch facts 11.1 (DFlash): it is accepted with a warning",
    message="DFlash with KVPP is not among the methods that the guide names; nobody has validated it.",
    fix="",
)
def dflash_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """DFlash with KVPP."""
    for role, path in drafting(resolved.kvpp_roles, "DFlash"):
        yield Fact(path, "DFlash", (Remove(f"{role.path}.speculative"),))


SHARING = "self.model.architecture.draftSharesTargetCache"


@rule(
    "SPEC004",
    severity="error",
    evidence="guide",
    source=f"{SEED}: draft caches must not share target KV caches; launch facts 1.2 rule 10",
    message="KVPP keeps draft caches apart from the target's; a draft that shares the target's KV caches does not "
    "start.",
    fix="",
    cel=tuple(
        Cel(
            f"!self.kvpp.enabled || !has(self.{role}) || !has(self.{role}.speculative) || "
            f"!has(self.model.architecture) || !{SHARING}",
            field_path=f".{role}.speculative",
        )
        for role in ("unified", "prefill")
    ),
)
def draft_shares_the_target_cache(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A draft that shares the target's caches."""
    if resolved.model is None or not resolved.model.draft_shares_target_cache:
        return
    for role in resolved.kvpp_roles:
        if role.speculative is not None:
            path = f"{role.path}.speculative"
            yield Fact(path, role.speculative.method, (Remove(path),))
