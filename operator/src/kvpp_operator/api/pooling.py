"""`spec.pooling`: the shared KV store behind AscendStoreConnector."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kvpp_operator.api.base import LINE, Argument, Model, PreservedObject, Quantity, extension
from kvpp_operator.api.model import Image, PodTemplate

Protocol = Literal[
    "DeviceRdma", "DeviceSdma", "DeviceUrma", "DeviceUboe", "HostRdma", "HostTcp", "HostUrma", "HostShm"
]  # fmt: skip
Address = Annotated[str, Field(min_length=1, max_length=512, pattern=LINE)]
Properties = Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=128)]


class ExternalMetaService(Model):
    address: Annotated[Address, Field(description="`host:port` of an existing MetaService.")]
    config_store_address: Annotated[
        Address | None, Field(description="`host:port` of its config store; default: the same host, port 6000.")
    ] = None


class MetaService(Model):
    replicas: Annotated[int, Field(ge=1, le=5, description="More than one: leader election by a Lease.")] = 1
    image: Annotated[Image, Field(description="Image of the MetaService.")] = Image()
    pod_template: Annotated[PodTemplate, Field(description="Merged into its pods.")] = PodTemplate()
    external: Annotated[ExternalMetaService | None, Field(description="An existing MetaService instead of ours.")] = (
        None
    )


class Memcache(Model):
    meta_service: Annotated[MetaService, Field(description="Run by the operator, or external.")] = MetaService()
    memory_per_device: Annotated[Quantity, Field(description="Pool memory that each device's process lends.")] = "64Gi"
    protocol: Annotated[Protocol | None, Field(description="Default by chip and interconnect.")] = None
    meta_config: Annotated[Properties, Field(description="Keys of mmc-meta.conf.")] = {}
    local_config: Annotated[Properties, Field(description="Keys of mmc-local.conf.")] = {}


class Layerwise(Model):
    prefetch_layers: Annotated[
        int | None,
        Field(ge=1, le=1024, description="`layerwise_prefetch_layers`: distance of the load; default: the engine's."),
    ] = None


class ExternalMaster(Model):
    address: Annotated[Address, Field(description="`host:port` of an existing mooncake_master.")]


class Master(Model):
    replicas: Annotated[int, Field(ge=1, le=1, description="One master; its own high availability needs etcd.")] = 1
    image: Annotated[Image, Field(description="Image of the master.")] = Image()
    pod_template: Annotated[PodTemplate, Field(description="Merged into its pod.")] = PodTemplate()
    args: Annotated[
        list[Argument],
        Field(
            max_length=64,
            description="More arguments of mooncake_master.",
            json_schema_extra=extension(list_type="atomic"),
        ),
    ] = []
    external: Annotated[ExternalMaster | None, Field(description="An existing master instead of ours.")] = None


class Mooncake(Model):
    layerwise: Annotated[
        Layerwise | None, Field(description="Layerwise loading; the only form that goes with KVPP.")
    ] = None
    memory_per_device: Annotated[Quantity, Field(description="`global_segment_size`, whole GiB.")] = "40Gi"
    config: Annotated[PreservedObject, Field(description="More keys of mooncake.json.")] = {}
    master: Annotated[Master, Field(description="Run by the operator, or external.")] = Master()


class Pooling(Model):
    backend: Annotated[Literal["Memcache", "Mooncake"], Field(description="Where pooled KV blocks live.")]
    role: Annotated[
        Literal["Producer", "Both"] | None,
        Field(
            description="`kv_role` of the pool; default Producer with P/D, Both on a unified role and for layerwise."
        ),
    ] = None
    extra_config: Annotated[PreservedObject, Field(description="More keys of the pool connector's extra config.")] = {}
    memcache: Annotated[Memcache | None, Field(description="Settings of the Memcache backend.")] = None
    mooncake: Annotated[Mooncake | None, Field(description="Settings of the Mooncake backend.")] = None
