"""A deployment's pool: where it is, who runs it, what its engines lend, and which layout its blocks have."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from kvpp_operator import names
from kvpp_operator.api.base import quantity_bytes
from kvpp_operator.api.pooling import Memcache, Mooncake
from kvpp_operator.catalogue import pools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvpp_operator.api.base import JsonObject
    from kvpp_operator.api.model import Image, Source
    from kvpp_operator.api.pooling import Master, MetaService
    from kvpp_operator.resolve import Resolved, ResolvedRole

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
class Layout:
    """What two engines must have in common to read each other's blocks (launch facts 4.1, KVPP object rule).

    Keys carry neither the weights' revision nor KVPP, so a pool is never shared over a change of one of these.
    """

    backend: str
    layerwise: bool
    model: str
    quantization: str
    kvpp: bool
    tensor: int
    prefill_context: int
    pipeline: int
    pipeline_layers: str
    main_cache: str
    indexer_cache: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def identity(self) -> str:
        """Short hash: part of the pool's name, and so of the engines' revision."""
        return names.digest(json.dumps(self.to_json(), sort_keys=True, ensure_ascii=False), 6)


WORDS = {
    "backend": "the backend",
    "layerwise": "layerwise loading",
    "model": "the weights",
    "quantization": "the quantization",
    "kvpp": "KVPP",
    "tensor": "tensor parallelism",
    "prefill_context": "prefill context parallelism",
    "pipeline": "pipeline parallelism",
    "pipeline_layers": "the layer partition",
    "main_cache": "the main cache's type",
    "indexer_cache": "the indexer cache's type",
}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Name what makes blocks of the old layout useless for the new one; empty: they fit.

    `("tensor parallelism 8 → 16",)`. Both as `Layout.to_json` gives them; a field that one lacks is passed over.
    """
    return tuple(
        f"{words} {shown(old[field])} → {shown(new[field])}"
        for field, words in WORDS.items()
        if field in old and field in new and old[field] != new[field]
    )


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) or "none"


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


def pooled_role(resolved: Resolved) -> ResolvedRole:
    """Decode takes no part in a pool (contract, pooling)."""
    return next(role for role in resolved.roles if role.name != "decode")


def plan_pool(resolved: Resolved, engine_image: str, ports: Mapping[str, int] | None = None) -> PoolPlan | None:
    """`ports`: those of the service by part where they are claims on the host network; None: the service's defaults."""
    pooling = resolved.spec.pooling
    if pooling is None:
        return None
    role = pooled_role(resolved)
    layout = layout_of(resolved, role)
    name = names.part(resolved.name, f"pool-{layout.identity}")
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
        service = service_of("meta-service", meta, (pools.POOL_IMAGE, version), ports)
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
        default = (pools.POOL_IMAGE, version) if version else (engine_image, "")
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
    repository, _, tag = default.partition("@")[0].rpartition(":")
    repository = image.repository or repository
    if image.digest:
        return f"{repository}:{image.tag}@{image.digest}" if image.tag else f"{repository}@{image.digest}"
    return f"{repository}:{image.tag or tag}"


def memcache_share(size: int, protocol: str) -> tuple[int, str]:
    """(bytes, text) of a share, rounded up as the client does: to 1 GB with the device's protocols, else to 2 MB.

    `GB` is 1024³ bytes there, and `GiB` is not understood (EMP).
    """
    step = GIBIBYTE if protocol.startswith("Device") else 2 * MEBIBYTE
    size = -(-size // step) * step
    return size, f"{size // GIBIBYTE}GB" if size % GIBIBYTE == 0 else f"{size // MEBIBYTE}MB"


def layout_of(resolved: Resolved, role: ResolvedRole) -> Layout:
    spec, parallelism = resolved.spec, role.role.parallelism
    pooling = spec.pooling
    assert pooling is not None
    eight_bit = role.accelerator.chip.cache_type
    return Layout(
        backend=pooling.backend,
        layerwise=pooling.mooncake is not None and pooling.mooncake.layerwise is not None,
        model=weights_of(spec.model.source),
        quantization=spec.model.quantization or "",
        kvpp=role.kvpp,
        tensor=parallelism.tensor,
        prefill_context=parallelism.prefill_context,
        pipeline=parallelism.pipeline,
        pipeline_layers=",".join(map(str, parallelism.pipeline_layers or ())) or "even",
        main_cache=eight_bit if spec.kv_cache.main == "C8" else "model",
        indexer_cache={"C8": eight_bit, "C4": "mxfp4"}.get(spec.kv_cache.indexer, "model"),
    )


def weights_of(source: Source) -> str:
    """Which weights, as far as the spec tells: `claim weights/GLM-5.2`, `repo org/name@main`."""
    if (claim := source.persistent_volume_claim) is not None:
        return f"claim {claim.claim_name}/{claim.path or ''}"
    if (host := source.host_path) is not None:
        return f"path {host.path}"
    if (image := source.image) is not None:
        return f"image {image.reference}/{image.path or ''}"
    hub = source.hugging_face or source.model_scope
    return f"repo {hub.repo}@{hub.revision or 'main'}" if hub is not None else ""
