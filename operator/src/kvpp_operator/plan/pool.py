"""A deployment's pool: where it is, who runs it, what its engines lend, and which layout its blocks have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvpp_operator.api.base import quantity_bytes
from kvpp_operator.api.pooling import Memcache, Mooncake
from kvpp_operator.catalogue import pools
from kvpp_operator.pool_layout import layout_of, pool_name, pooled_role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvpp_operator.api.base import JsonObject
    from kvpp_operator.api.model import Image
    from kvpp_operator.api.pooling import Master, MetaService
    from kvpp_operator.pool_layout import Layout
    from kvpp_operator.resolve import Resolved

ServiceName = Literal["meta-service", "mooncake-master"]
GIBIBYTE = 2**30
MEBIBYTE = 2**20


@dataclass(frozen=True)
class Endpoint:
    """Where a service listens; IPv6 literals without brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """`host:port` or `[address]:port`; rule POOL040 has refused everything else."""
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class PoolService:
    """A MetaService or Mooncake master that the operator runs."""

    kind: ServiceName
    image: str
    version: str
    """Of the backend's package: the pool image has several; empty where the image has one."""
    pull_policy: str
    replicas: int
    ports: Mapping[str, int]
    """By part: `rpc`, `store`, `http` or `rpc`, `metrics`."""
    host_network: bool
    pod_template: JsonObject


@dataclass(frozen=True)
class MemcachePlan:
    store: Endpoint
    protocol: str
    """As in the contract: `DeviceUrma`."""
    meta_config: Mapping[str, str]
    local_config: Mapping[str, str]


@dataclass(frozen=True)
class MooncakePlan:
    config: JsonObject
    master_args: tuple[str, ...]


@dataclass(frozen=True)
class PoolPlan:
    name: str
    """Of all objects of the pool; it carries the layout's identity, so that another layout gets another pool."""
    layout: Layout
    service: PoolService | None
    """None: an existing service, never touched by us."""
    rpc: Endpoint
    """MetaService or master, as engines reach it."""
    share: str
    """What each device's process lends, in the backend's words: `64GB` (of 1024³ bytes)."""
    share_bytes: int
    backend: MemcachePlan | MooncakePlan

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Everything that an engine must reach before it starts."""
        return (self.rpc, self.backend.store) if isinstance(self.backend, MemcachePlan) else (self.rpc,)


def plan_pool(resolved: Resolved, engine_image: str, ports: Mapping[str, int] | None = None) -> PoolPlan | None:
    """`ports`: those of the service by part where they are claims on the host network; None: the service's defaults."""
    pooling = resolved.spec.pooling
    if pooling is None:
        return None
    layout = layout_of(resolved)
    name = pool_name(resolved, layout)
    if pooling.backend == "Memcache":
        return plan_memcache(resolved, layout, name, ports)
    return plan_mooncake(resolved, layout, name, engine_image, ports)


def plan_memcache(resolved: Resolved, layout: Layout, name: str, ports: Mapping[str, int] | None) -> PoolPlan:
    assert resolved.spec.pooling is not None
    memcache, role = resolved.spec.pooling.memcache or Memcache(), pooled_role(resolved)
    meta = memcache.meta_service
    fabric = (role.accelerator.chip.name, role.accelerator.interconnect)
    protocol = memcache.protocol or pools.DEFAULT_PROTOCOL.get(fabric, "HostTcp")
    service: PoolService | None = None
    if meta.external is not None:
        rpc = Endpoint.parse(meta.external.address)
        given = meta.external.config_store_address
        store = Endpoint.parse(given) if given else Endpoint(rpc.host, pools.default_ports("meta-service")["store"])
    else:
        version = pools.META_SERVICE_VERSION[resolved.release.name]
        service = service_of("meta-service", meta, (resolved.configuration.pool_image, version), ports)
        rpc, store = (Endpoint(host_of(resolved, name), service.ports[part]) for part in ("rpc", "store"))
    size, share = memcache_share(quantity_bytes(memcache.memory_per_device), protocol)
    backend = MemcachePlan(store, protocol, memcache.meta_config, memcache.local_config)
    return PoolPlan(name, layout, service, rpc, share, size, backend)


def plan_mooncake(
    resolved: Resolved, layout: Layout, name: str, engine_image: str, ports: Mapping[str, int] | None
) -> PoolPlan:
    assert resolved.spec.pooling is not None
    mooncake = resolved.spec.pooling.mooncake or Mooncake()
    master = mooncake.master
    service: PoolService | None = None
    if master.external is not None:
        rpc = Endpoint.parse(master.external.address)
    else:
        version = pools.MASTER_VERSION.get(resolved.release.name)
        default = (resolved.configuration.pool_image, version) if version else (engine_image, "")
        service = service_of("mooncake-master", master, default, ports)
        rpc = Endpoint(host_of(resolved, name), service.ports["rpc"])
    gibibytes = -(-quantity_bytes(mooncake.memory_per_device) // GIBIBYTE)
    backend = MooncakePlan(mooncake.config, tuple(master.args))
    return PoolPlan(name, layout, service, rpc, f"{gibibytes}GB", gibibytes * GIBIBYTE, backend)


def service_of(
    kind: ServiceName, asked: MetaService | Master, default: tuple[str, str], ports: Mapping[str, int] | None
) -> PoolService:
    """`default`: (image, version of the package in it)."""
    return PoolService(
        kind=kind,
        image=image_reference(asked.image, default[0]),
        version=default[1],
        pull_policy=asked.image.pull_policy or "IfNotPresent",
        replicas=asked.replicas,
        ports=ports or pools.default_ports(kind),
        host_network=asked.pod_template.spec.get("hostNetwork") is True,
        pod_template=asked.pod_template.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def host_of(resolved: Resolved, name: str) -> str:
    """Give the Service's name as every engine resolves it, on the host network too (ClusterFirstWithHostNet)."""
    return f"{name}.{resolved.namespace}.svc"


def image_reference(image: Image, default: str) -> str:
    """Put the user's parts over the default's."""
    if not (image.repository or image.tag or image.digest):
        return default
    named, _, rest = default.partition("@")[0].rpartition("/")  # a registry may have a port
    last, _, tag = rest.partition(":")
    repository = image.repository or (f"{named}/{last}" if named else last)
    if image.digest:
        return f"{repository}:{image.tag}@{image.digest}" if image.tag else f"{repository}@{image.digest}"
    tag = image.tag or tag
    return f"{repository}:{tag}" if tag else repository


def memcache_share(size: int, protocol: str) -> tuple[int, str]:
    """(bytes, text) of a share, rounded up as the client does: to 1 GB with the device's protocols, else to 2 MB.

    `GB` is 1024³ bytes there, and `GiB` is not understood (EMP).
    """
    step = GIBIBYTE if protocol.startswith("Device") else 2 * MEBIBYTE
    size = -(-size // step) * step
    return size, f"{size // GIBIBYTE}GB" if size % GIBIBYTE == 0 else f"{size // MEBIBYTE}MB"
