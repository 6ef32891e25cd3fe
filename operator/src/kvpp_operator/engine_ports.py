"""Which ports each engine gets: the role's fixed block on the pod network, claims on the host network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvpp_operator.api.v1alpha1 import RoleName
from kvpp_operator.ledger import claim as claims
from kvpp_operator.ledger.allocate import Request
from kvpp_operator.ledger.claim import Claim, Holder, Owner
from kvpp_operator.ledger.pods import NoRoom, RoleBlock, pod_network_blocks
from kvpp_operator.ledger.window import host_windows
from kvpp_operator.ports import PortRange, host_layout, split
from kvpp_operator.resolve import Resolved, ResolvedRole

POD_NETWORK_PORTS = {"api": 8000, "dp_rpc": 29550, "torch_master": 29501}
"""The engine's own defaults: every pod has an address of its own (ports.ENGINE_PORTS)."""


@dataclass(frozen=True)
class EnginePorts:
    """Ports of one engine by the names that templates know (render.tokens.PortRef)."""

    kv: PortRange | None
    others: Mapping[str, int] = field(default_factory=lambda: POD_NETWORK_PORTS)

    @property
    def numbers(self) -> dict[str, int]:
        return {**self.others, **({"kv": self.kv.first} if self.kv else {})}


EnginePortsByEngine = Mapping[tuple[RoleName, int], EnginePorts]


@dataclass(frozen=True)
class PortPlan:
    """Ports of every engine; `claims` is what they need of the ledger, empty on the pod network."""

    ports: EnginePortsByEngine
    claims: tuple[Claim, ...] = ()


def hands_over(role: ResolvedRole) -> bool:
    """Whether the role has a kv block: prefill and decode; a unified engine keeps its KV to itself."""
    return role.name != "unified"


def pod_network_plan(resolved: Resolved) -> PortPlan | NoRoom:
    """One block for all engines of a role: their addresses differ (contract, kv blocks)."""
    roles: dict[str, RoleBlock] = {
        role.name: RoleBlock(role.kv_block_length, role.role.kv_port) for role in resolved.roles if hands_over(role)
    }
    blocks = pod_network_blocks(roles, resolved.kv_window)
    if isinstance(blocks, NoRoom):
        return blocks
    return PortPlan(
        {
            (role.name, index): EnginePorts(kv=blocks.get(role.name))
            for role in resolved.roles
            for index in range(role.replicas)
        }
    )


def owner_of(resolved: Resolved) -> Owner:
    metadata = resolved.deployment.metadata
    return Owner(metadata.namespace, metadata.name, metadata.uid)


def requests(resolved: Resolved, revision: str) -> list[Request]:
    """What the engines of one revision need of the ledger: a kv block where KV is handed over, and a host block."""
    owner = owner_of(resolved)
    wanted: list[Request] = []
    for role in resolved.roles:
        npus = role.accelerator.devices_per_node
        windows = host_windows(npus, resolved.reserved_ports)
        length = sum(host_layout(npus).values())
        for index in range(role.replicas):
            holder = Holder(owner, role.name, index, revision)
            if hands_over(role):
                wanted.append(
                    Request(holder, claims.KV, role.kv_block_length, (resolved.kv_window,), role.role.kv_port)
                )
            wanted.append(Request(holder, claims.HOST, length, windows))
    return wanted


def claimed_plan(resolved: Resolved, given: Iterable[Claim]) -> PortPlan:
    """Ports from claims that answer `requests`."""
    found = tuple(given)
    blocks: dict[tuple[str, int, str], PortRange] = {
        (c.holder.role, c.holder.engine, c.purpose): c.block for c in found
    }
    ports: dict[tuple[RoleName, int], EnginePorts] = {}
    for role in resolved.roles:
        layout = host_layout(role.accelerator.devices_per_node)
        for index in range(role.replicas):
            parts = split(blocks[role.name, index, claims.HOST], layout)
            numbers = {part: block.first for part, block in parts.items()}
            ports[role.name, index] = EnginePorts(blocks.get((role.name, index, claims.KV)), numbers)
    return PortPlan(ports, found)
