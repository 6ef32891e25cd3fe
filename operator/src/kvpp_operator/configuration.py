"""The operator's own configuration: facts of the cluster that do not belong in every KVPPDeployment.

One file, read by the operator from its ConfigMap and by the CLI through `--config`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kvpp_operator.api.base import Model, Name, Path, Text
from kvpp_operator.api.model import ChipName, DriverMounts, InterconnectName
from kvpp_operator.api.v1alpha1 import KvPorts, PortOrRange

DEFAULT_REPOSITORY = "quay.io/ascend/vllm-ascend"
DEFAULT_ROUTER_IMAGE = "localhost/kvpp-router:0.1.0"
DEFAULT_POOL_IMAGE = "localhost/kvpp-pool:0.1.0"
"""What `make images` builds, tagged as the project."""

DEFAULT_WINDOW = KvPorts(first=22000, last=29999)


class ChipConfiguration(Model):
    """What this cluster says about one chip."""

    resource_name: Annotated[
        str | None, Field(max_length=253, description="Extended resource of the device plugin.")
    ] = None
    devices_per_node: Annotated[int | None, Field(ge=1, le=64, description="NPUs of one node.")] = None
    interconnect: Annotated[InterconnectName | None, Field(description="Fabric between nodes.")] = None


class AllowList(Model):
    host_paths: Annotated[
        list[Path] | None, Field(description="Prefixes that `source.hostPath` may use; absent: any.", max_length=64)
    ] = None
    host_network_namespaces: Annotated[
        list[Name] | None, Field(description="Namespaces that may use the host network; absent: any.", max_length=256)
    ] = None


class Configuration(Model):
    image_repository: Annotated[Text, Field(description="Repository of the engine's image; a mirror goes here.")] = (
        DEFAULT_REPOSITORY
    )
    router_image: Annotated[
        Text, Field(description="Image of router pods, with tag or digest; a mirror goes here.")
    ] = DEFAULT_ROUTER_IMAGE
    pool_image: Annotated[
        Text,
        Field(
            description="Image of the pools' services, MetaService and Mooncake master; push what `make images` builds."
        ),
    ] = DEFAULT_POOL_IMAGE
    chips: Annotated[dict[ChipName, ChipConfiguration], Field(description="Cluster facts by chip.")] = {}
    driver_mounts: Annotated[DriverMounts, Field(description="Default of `accelerator.driverMounts`.")] = "Auto"
    interface: Annotated[str | None, Field(max_length=15, description="Network interface of hosts.")] = None
    runtime_class_name: Annotated[Name | None, Field(description="RuntimeClass of engine pods.")] = None
    scheduler_name: Annotated[Name | None, Field(description="Scheduler of engine pods.")] = None
    kv_ports: Annotated[KvPorts, Field(description="Window of kv ports.")] = DEFAULT_WINDOW
    reserved_ports: Annotated[
        list[PortOrRange], Field(max_length=256, description="Ports that others use on hosts.")
    ] = []
    allow: Annotated[AllowList, Field(description="Limits for what deployments may ask of hosts.")] = AllowList()
    watch_namespaces: Annotated[list[Name], Field(max_length=256, description="Namespaces to serve; empty: all.")] = []


DEFAULT = Configuration()
