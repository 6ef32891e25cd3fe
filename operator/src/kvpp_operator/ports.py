"""Port arithmetic: what an engine binds, and what others bind, on the network of a host.

On the pod network every pod has its own ports, so nothing is claimed there. On the host network every port that an
engine is *told* to bind lies in one of its two blocks, and no two blocks of the cluster overlap (`ledger`):

kv block    `kv_port` and the N + DP numbers from it: `kv_block_length`
host block  HCCL's ports, pool local services, DP rpc, torch master, API, one behind the other: `host_layout`

So any two engines may share a host. Ports that an engine picks *for itself* can't be claimed; they come from ranges
that no block enters: ephemeral (ZMQ, Gloo, the DP store), 15000-17000 (Mooncake), 20000 and up (Ascend transport).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LAST_PORT = 65535


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Consecutive ports, both ends included. ValueError when empty or outside 1-65535."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last <= LAST_PORT:
            raise ValueError(f"{self.first}-{self.last} is no port range: 1 <= first <= last <= {LAST_PORT}")

    @classmethod
    def of(cls, first: int, length: int) -> PortRange:
        """`length` ports from `first`."""
        return cls(first, first + length - 1)

    @classmethod
    def parse(cls, text: int | str) -> PortRange:
        """`8000`, `"8000"` or `"28040-28043"`; anything else is a ValueError."""
        first, dash, last = str(text).partition("-")
        return cls(int(first), int(last if dash else first))

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    def __len__(self) -> int:
        return self.length

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def overlaps(self, other: PortRange) -> bool:
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Reserved:
    """A range that others use. We put no block there; `on_host` and `on_pods` judge a pin that does."""

    name: str
    block: PortRange
    on_host: Severity
    on_pods: Severity
    harm: str
    source: str


SYSCTL = "net.ipv4.ip_local_reserved_ports"

RESERVED: tuple[Reserved, ...] = (
    Reserved("Mooncake RPC", PortRange(15000, 17000), "error", "warning",
             "Mooncake's transfer engine picks its RPC port there at random",
             "Mooncake: MC_MIN_RPC_PORT, MC_MAX_RPC_PORT; HIXL's listen_port 16666 lies in it"),
    # CANN names 16 ports up to 8.2 alpha and 32 since 8.2 RC1: without HCCL_IF_BASE_PORT it tries 60000-60031 in turn.
    Reserved("HCCL default", PortRange(60000, 60031), "error", "warning",
             "HCCL listens there unless HCCL_IF_BASE_PORT moves it",
             "CANN 9.x environment reference: HCCL_IF_BASE_PORT"),
    Reserved("NodePorts", PortRange(30000, 32767), "warning", "warning",
             f"a Service may get one of them as its NodePort, which {SYSCTL} does not prevent; "
             "it matters on the host network only", "kube-apiserver: --service-node-port-range"),
    Reserved("ephemeral ports", PortRange(32768, 60999), "warning", "warning",
             f"any outgoing connection may hold one of them; add the block to {SYSCTL}",
             "Linux ip-sysctl: ip_local_port_range"),
)  # fmt: skip


def transport_range(npus_per_node: int) -> PortRange:
    """Where the Ascend transport listens, upper end included: 100 ports an NPU from the pinned ASCEND_BASE_PORT."""
    return PortRange(20000, 20000 + 100 * npus_per_node)


def reserved_ranges(npus_per_node: int, extra: Iterable[PortRange] = ()) -> tuple[Reserved, ...]:
    """Every range that blocks keep out of on nodes with that many NPUs; `extra` is what the user lists."""
    transport = Reserved(
        "Ascend transport", transport_range(npus_per_node), "error", "warning",
        f"the transport of {npus_per_node} NPUs picks its ports there at random",
        "mooncake-transfer-engine-npu 0.3.11.post1 (every image that has KVPP); vllm-ascend #14263",
    )  # fmt: skip
    listed = tuple(
        Reserved("reserved ports", block, "error", "warning", "it is listed as used by others", "reservedPorts")
        for block in extra
    )
    return (transport, *RESERVED, *listed)


@dataclass(frozen=True, slots=True)
class BoundPort:
    """One kind of port that a process binds. `part`: the part of its block it lies in, None when it isn't claimed."""

    name: str
    count: str
    protocol: str
    bound_by: str
    default: int | None
    carrier: str
    part: str | None = None


ENGINE_PORTS: tuple[BoundPort, ...] = (
    BoundPort("kv rank numbers", "N", "none: advertised only", "-", None, "kv_port in --kv-transfer-config", "kv"),
    BoundPort("kv control", "DP", "ZMQ", "producers, first node of a DP replica", None, "kv_port + N + dp_rank", "kv"),
    BoundPort("HCCL", "16", "TCP", "every node", 60000, "env HCCL_IF_BASE_PORT", "hccl"),
    BoundPort("pool local services", "one a device", "TCP", "every node, memcache's Host… protocols", 7000,
              "ock.mmc.local_service.hcom_url: port + local rank", "local_service"),
    BoundPort("DP rpc", "1", "ZMQ", "head, when DP spans nodes", 29550, "--data-parallel-rpc-port", "dp_rpc"),
    BoundPort("torch master", "1", "TCP store", "head, with --nnodes > 1", 29501, "--master-port", "torch_master"),
    BoundPort("API", "1", "HTTP", "head", 8000, "--port", "api"),
    # vllm/config/parallel.py: with DP > 1 it takes five free ports; VLLM_DP_MASTER_PORT counts offline only.
    BoundPort("DP master", "5", "TCP store", "head, DP > 1", 29500, "the engine picks: ephemeral"),
    BoundPort("message queues", "any", "ZMQ", "every node", None, "the engine picks: ephemeral; VLLM_PORT is unset"),
    BoundPort("Mooncake RPC", "1", "TCP", "every node", None, "the engine picks: MC_MIN_RPC_PORT-MC_MAX_RPC_PORT"),
    BoundPort("Ascend transport", "1 an NPU", "TCP", "every node", 20000, "the engine picks: ASCEND_BASE_PORT and up"),
    BoundPort("HCCL of an NPU", "1", "TCP, the NPU's address", "every node", 16666, "env HCCL_NPU_SOCKET_PORT_RANGE"),
)  # fmt: skip
"""Facts §2 and §11.1: all that an engine binds, on either network."""

SERVICE_PORTS: Mapping[str, tuple[BoundPort, ...]] = {
    "router": (BoundPort("router", "1", "HTTP", "router-agent", 8000, "kvpp router-agent --listen", "http"),),
    "meta-service": (
        BoundPort("MetaService RPC", "1", "TCP", "MetaService", 5000, "ock.mmc.meta_service_url", "rpc"),
        BoundPort("config store", "1", "TCP", "MetaService", 6000, "ock.mmc.meta_service.config_store_url", "store"),
        # 8000 is the engines' API port too: on one host the two clash.
        BoundPort("MetaService HTTP", "1", "HTTP", "MetaService", 8000, "ock.mmc.meta_service.metrics_url", "http"),
    ),
    "mooncake-master": (
        BoundPort("Mooncake master", "1", "RPC", "mooncake_master", 50088, "--port", "rpc"),
        BoundPort("Mooncake metrics", "1", "HTTP", "mooncake_master", 9003, "--metrics_port", "metrics"),
    ),
}
"""What else a deployment binds; on the host network each has a host block of its own: `service_layout`."""


def kv_block_length(data: int, pipeline: int, prefill_context: int, tensor: int) -> int:
    """Ports of a kv block: one number a rank, then one control port a DP replica: N + DP.

    MooncakeConnectorV2 binds `kv_port + N + dp_rank`, on producers only; a consumer reserves the same length
    (vllm-ascend 0.30.0rc2: base_worker.py, base_scheduler.py).
    """
    return data * pipeline * prefill_context * tensor + data


def kv_control_ports(block: PortRange, data: int) -> PortRange:
    """Cut out of a producer's kv block what is bound: its last `data` ports."""
    return PortRange(block.last - data + 1, block.last)


def host_layout(npus_per_node: int, local_services: int = 0) -> dict[str, int]:
    """Ports of a host block by part, in order. `local_services`: pool processes of one node that listen.

    HCCL binds base + *physical* id of the NPU (hcomm, topoinfo_detect): as many ports as a node has NPUs, 16 at least.
    The 16 above them that CANN also names are for a listener that starts with 32,768 ranks; no engine has those.
    HCCL comes first and the API last: every engine shows both, so a live one shows its whole block (`ledger.live`).
    """
    return {"hccl": max(16, npus_per_node), "local_service": local_services, "dp_rpc": 1, "torch_master": 1, "api": 1}


def host_block_length(npus_per_node: int, local_services: int = 0) -> int:
    return sum(host_layout(npus_per_node, local_services).values())


def service_layout(service: str) -> dict[str, int]:
    """Ports of a service's host block by part, in order: `{"rpc": 1, "store": 1, "http": 1}`."""
    return {port.part: 1 for port in SERVICE_PORTS[service] if port.part}


def starts(block: PortRange, layout: Mapping[str, int]) -> dict[str, int]:
    """First port of each part of a host block: `{"hccl": 17001, "dp_rpc": 17017, …}`; empty parts are left out.

    Counted from the end: a running engine keeps its block when the layout grows, by nodes with more NPUs or by a newer
    operator. The first part then begins where the block does, and the others are where they were.
    """
    numbers, after = {}, block.last + 1
    for part, length in reversed(list(layout.items())):
        after -= length
        if length:
            numbers[part] = after
    return {part: numbers[part] for part in layout if part in numbers} | {next(iter(layout)): block.first}
