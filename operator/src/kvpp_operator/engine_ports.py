"""Which ports each engine gets, and a pool's service: fixed ones on the pod network, claims on the host network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvpp_operator import pool_layout
from kvpp_operator.api.v1alpha1 import RoleName
from kvpp_operator.catalogue import pools
from kvpp_operator.ledger import claim as claims
from kvpp_operator.ledger.allocate import Request
from kvpp_operator.ledger.claim import Claim, Holder, Owner
from kvpp_operator.ledger.pods import NoRoom, RoleBlock, pod_network_blocks
from kvpp_operator.ledger.window import host_windows
from kvpp_operator.ports import PortRange, host_layout, service_layout, starts
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


def layout_of(resolved: Resolved, role: ResolvedRole) -> dict[str, int]:
    """Parts of the host block of one of the role's engines."""
    return host_layout(role.accelerator.devices_per_node, local_services(resolved, role))


def local_services(resolved: Resolved, role: ResolvedRole) -> int:
    """Pool processes of one of its pods that listen on the host; decode takes no part in a pool."""
    pooling = resolved.spec.pooling
    if pooling is None or role.name == "decode":
        return 0
    fabric = (role.accelerator.chip.name, role.accelerator.interconnect)
    asked = pooling.memcache.protocol if pooling.memcache else None
    return pools.local_services(pooling, asked or pools.DEFAULT_PROTOCOL.get(fabric, "HostTcp"), role.devices_per_pod)


def requests(resolved: Resolved, revision: str) -> list[Request]:
    """What the engines of one revision need of the ledger: a kv block where KV is handed over, and a host block."""
    owner = owner_of(resolved)
    wanted: list[Request] = []
    for role in resolved.roles:
        windows = host_windows(role.accelerator.devices_per_node, resolved.reserved_ports)
        length = sum(layout_of(resolved, role).values())
        for index in range(role.replicas):
            holder = Holder(owner, role.name, index, revision)
            if hands_over(role):
                wanted.append(
                    Request(holder, claims.KV, role.kv_block_length, (resolved.kv_window,), role.role.kv_port)
                )
            wanted.append(Request(holder, claims.HOST, length, windows))
    return wanted


def pool_holder(resolved: Resolved) -> Holder | None:
    """Who holds the ports of the pool's service; None where it is not ours, or has an address of its own."""
    service = pools.pool_service_on_host_network(resolved.spec.pooling)
    return None if service is None else Holder(owner_of(resolved), service, 0, pool_layout.layout_of(resolved).identity)


def claims_asked(resolved: Resolved, revision: str) -> list[Request]:
    """All that a deployment needs of the ledger: engines on the host network, and the pool's service there."""
    wanted = requests(resolved, revision) if resolved.spec.networking.host_network else []
    if (holder := pool_holder(resolved)) is not None:
        windows = host_windows(resolved.npus_per_node, resolved.reserved_ports)
        wanted.append(Request(holder, claims.HOST, sum(service_layout(holder.role).values()), windows))
    return wanted


def pool_ports(resolved: Resolved, given: Iterable[Claim]) -> dict[str, int] | None:
    """Ports of the pool's service by part, from the claim that answers; None where it has none."""
    holder = pool_holder(resolved)
    block = next((claim.block for claim in given if claim.holder == holder), None)
    return None if holder is None or block is None else starts(block, service_layout(holder.role))


def claimed_plan(resolved: Resolved, given: Iterable[Claim]) -> PortPlan:
    """Ports from claims that answer `requests`."""
    found = tuple(given)
    blocks: dict[tuple[str, int, str], PortRange] = {
        (c.holder.role, c.holder.engine, c.purpose): c.block for c in found
    }
    ports: dict[tuple[RoleName, int], EnginePorts] = {}
    for role in resolved.roles:
        layout = layout_of(resolved, role)
        for index in range(role.replicas):
            numbers = starts(blocks[role.name, index, claims.HOST], layout)
            ports[role.name, index] = EnginePorts(blocks.get((role.name, index, claims.KV)), numbers)
    return PortPlan(ports, found)
