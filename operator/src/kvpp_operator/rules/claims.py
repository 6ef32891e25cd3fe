"""Kv blocks and pins: what can't be had on this network, with this window, beside these claims.

Judged against the ledger that the world holds without the deployment's own claims: offline that is what the documents
before it took, so several files are judged as one cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.engine_ports import owner_of, pod_network_plan, requests
from kvpp_operator.ledger.allocate import Allocation, allocate
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.ledger.pods import NoRoom
from kvpp_operator.ledger.refusal import Exhausted, Forbidden, PastEnd, Taken
from kvpp_operator.ports import reserved_ranges
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Edit, Fact, Remove, rule
from kvpp_operator.world import World

CONTRACT = "contract, kv blocks; launch facts 2.1: an engine reserves DP x PP x PCP x TP + DP numbers"


@rule(
    "PORT001",
    severity="error",
    evidence="guide",
    source=CONTRACT,
    message="The window of kv ports has no room: {why}.",
    fix="or widen the window, scale down, or free ports that others hold",
)
def no_room(resolved: Resolved, world: World) -> Iterator[Fact]:
    """No room in the window for the kv blocks."""
    networking = resolved.spec.networking
    path = "spec.networking.kvPorts" if networking.kv_ports else "spec.networking"
    given = {"kvPorts": networking.kv_ports, "reservedPorts": networking.reserved_ports}
    fix: tuple[Edit, ...] = tuple(Remove(f"spec.networking.{name}") for name, value in given.items() if value)[:1]
    window = str(resolved.kv_window)
    if not resolved.spec.networking.host_network:
        answer = pod_network_plan(resolved)
        if isinstance(answer, NoRoom) and answer.pin is None:
            yield Fact(path, window, fix, {"why": answer.message})
        return
    for problem in problems(resolved, world):
        if isinstance(problem, Exhausted):
            yield Fact(path, window, fix, {"why": problem.message})


@rule(
    "PORT002",
    severity="error",
    evidence="guide",
    source="docs/ports.md, Where blocks lie; launch facts 11.1 (Transport range); CANN environment reference, HCCL_IF_BASE_PORT",
    message="The pinned kv block lies where other ports are picked on every host: {why}.",
    fix="or pin a block in 22000-29999",
)
def pin_in_a_forbidden_range(resolved: Resolved, world: World) -> Iterator[Fact]:
    """A pin on the host network inside the range of the transport, of HCCL or of reserved ports."""
    for role, problem in first_of(resolved, world, Forbidden):
        yield pin_fact(resolved, role, problem.message)


@rule(
    "PORT003",
    severity="error",
    evidence="guide",
    source=CONTRACT,
    message="The pinned kv block passes the last port: {why}.",
    fix="or a lower pin",
)
def pin_past_the_end(resolved: Resolved, world: World) -> Iterator[Fact]:
    """A pin whose block passes port 65535."""
    if not resolved.spec.networking.host_network:
        answer = pod_network_plan(resolved)
        if isinstance(answer, NoRoom) and answer.pin is not None:
            yield pin_fact(resolved, answer.role, answer.message)
        return
    for role, problem in first_of(resolved, world, PastEnd):
        yield pin_fact(resolved, role, problem.message)


@rule(
    "PORT004",
    severity="error",
    evidence="guide",
    validation="never",
    source="seed guide, PD Disaggregation: choose non-overlapping port ranges when both nodes run on one host; vllm-ascend #4725",
    message="The pinned kv block overlaps another engine's, and the two may run on one host: {why}.",
    fix="or pin a block that is free",
)
def pin_meets_a_claim(resolved: Resolved, world: World) -> Iterator[Fact]:
    """A pin on the host network that overlaps another engine's block."""
    for role, problem in first_of(resolved, world, Taken):
        yield pin_fact(resolved, role, problem.message)


@rule(
    "PORT005",
    severity="warning",
    evidence="guide",
    source="launch facts 2.2 and 11.1 (Transport range); Linux ip-sysctl, ip_local_port_range; kube-apiserver, service-node-port-range",
    message="The pinned kv block lies where other ports may be: {why}.",
    fix="or pin a block in 22000-29999",
)
def pin_in_a_risky_range(resolved: Resolved, world: World) -> Iterator[Fact]:
    """A pin on the host network inside the NodePort or ephemeral range."""
    if not resolved.spec.networking.host_network:
        return
    answer = allocate_beside(resolved, world)
    seen: set[tuple[str, str]] = set()
    for verdict in answer.warnings if isinstance(answer, Allocation) else ():
        for role in resolved.roles:
            if (
                role.role.kv_port is not None
                and (role.name, verdict.reserved.name) not in seen
                and is_block_of(role, verdict.block.first)
            ):
                seen.add((role.name, verdict.reserved.name))
                yield pin_fact(resolved, role.name, verdict.message)


def is_block_of(role: Any, first: int) -> bool:
    pin = role.role.kv_port
    return bool(pin <= first < pin + max(role.replicas, 1) * role.kv_block_length)


def allocate_beside(resolved: Resolved, world: World) -> Any:
    """What the ledger would answer, the deployment's own claims left out: a re-check must not collide with itself."""
    owner = owner_of(resolved)
    others = Ledger(
        tuple(
            c for c in world.ledger if (c.holder.owner.namespace, c.holder.owner.name) != (owner.namespace, owner.name)
        )
    )
    return allocate(
        others, requests(resolved, "planned"), reserved=reserved_ranges(resolved.npus_per_node, resolved.reserved_ports)
    )


def problems(resolved: Resolved, world: World) -> tuple[Any, ...]:
    if not resolved.spec.networking.host_network:
        return ()
    answer = allocate_beside(resolved, world)
    return () if isinstance(answer, Allocation) else answer.problems


def first_of(resolved: Resolved, world: World, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The first problem of a kind in each role: the replicas of a role fail alike."""
    seen: set[str] = set()
    for problem in problems(resolved, world):
        if isinstance(problem, kind) and problem.holder.role not in seen:
            seen.add(problem.holder.role)
            yield problem.holder.role, problem


def pin_fact(resolved: Resolved, role: str, why: str) -> Fact:
    path = f"spec.{role}.kvPort"
    pin = next(r.role.kv_port for r in resolved.roles if r.name == role)
    return Fact(path, pin, (Remove(path),), {"why": why})
