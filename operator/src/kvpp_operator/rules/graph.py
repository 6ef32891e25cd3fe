"""Graph mode of the roles where KVPP works."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Cel, Fact, Set, rule
from kvpp_operator.world import World

FULL = ("FullDecodeOnly", "FullAndPiecewise", "Full")


@rule(
    "GRAPH001",
    severity="error",
    evidence="check",
    validation="seed",
    source='seed guide, Supported Features, "Graph mode": eager and PIECEWISE; full graph modes are not supported',
    message="KVPP runs eager or with PIECEWISE graphs; full graph modes are not supported with KVPP.",
    fix="or Piecewise, where the release has it",
    cel=tuple(
        Cel(
            f"!self.kvpp.enabled || !has(self.{role}) || self.{role}.graphMode in ['Eager', 'Piecewise']",
            field_path=f".{role}.graphMode",
        )
        for role in ("unified", "prefill")
    ),
)
def full_graph_with_kvpp(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Full graph mode on a KVPP role."""
    for role in resolved.kvpp_roles:
        if role.role.graph_mode in FULL:
            path = f"{role.path}.graphMode"
            yield Fact(path, role.role.graph_mode, (Set(path, "Eager"),))


@rule(
    "GRAPH002",
    severity="error",
    evidence="check",
    until="0.29.0rc1",
    source="launch facts 1.3, row PIECEWISE: KVPPConfig of 0.28 and 0.29 takes eager only",
    message="vLLM Ascend {release} runs KVPP eager only; PIECEWISE graphs with KVPP came with {first}.",
    fix="or engine.version to {first} or newer",
)
def piecewise_before_its_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PIECEWISE with KVPP on a release that takes eager only."""
    for role in resolved.kvpp_roles:
        if role.role.graph_mode == "Piecewise":
            path = f"{role.path}.graphMode"
            yield Fact(path, role.role.graph_mode, (Set(path, "Eager"),))
