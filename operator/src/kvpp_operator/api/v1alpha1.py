"""`KVPPDeployment` of `serving.kvpp.io/v1alpha1`, as a user sees it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from kvpp_operator.api.base import JsonObject, Model, Name, Port, PreservedObject, extension
from kvpp_operator.api.model import Accelerator, Engine, ModelSpec, PodTemplate, SecretKey
from kvpp_operator.api.pooling import Pooling
from kvpp_operator.api.role import DecodeRole, PrefillRole

GROUP = "serving.kvpp.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "KVPPDeployment"
PLURAL = "kvppdeployments"

RoleName = Literal["unified", "prefill", "decode"]
ROLES: tuple[RoleName, ...] = ("unified", "prefill", "decode")


class Kvpp(Model):
    enabled: Annotated[
        bool, Field(description="KVPP on unified or prefill; off is the same deployment without it.")
    ] = True


class KvCache(Model):
    """One layout for prefill and decode: a transfer compares block lengths."""

    main: Annotated[Literal["Auto", "C8"], Field(description="C8: SFA-C8, 8-bit main cache.")] = "Auto"
    indexer: Annotated[Literal["Auto", "C8", "C4"], Field(description="C8: LI-C8; C4: LI-C4, the indexer's cache.")] = (
        "Auto"
    )


class KvTransfer(Model):
    load_failure_policy: Annotated[
        Literal["Fail", "Recompute"] | None, Field(description="`kv_load_failure_policy` on the outermost connector.")
    ] = None
    extra_config: Annotated[
        PreservedObject, Field(description="More keys of the outermost connector's extra config.")
    ] = {}


class RouterService(Model):
    type: Annotated[
        Literal["ClusterIP", "NodePort", "LoadBalancer"], Field(description="Type of the router's Service.")
    ] = "ClusterIP"
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)] = {}


class Router(Model):
    type: Annotated[
        Literal["Proxy", "Kthena", "None"] | None,
        Field(description="What stands in front; default Proxy with prefill and decode."),
    ] = None
    replicas: Annotated[int, Field(ge=0, le=64, description="Router pods.")] = 1
    service: Annotated[RouterService, Field(description="How the router is reached.")] = RouterService()
    pod_template: Annotated[PodTemplate, Field(description="Merged into the router's pods.")] = PodTemplate()


class KvPorts(Model):
    first: Annotated[Port, Field(description="First port of the window.")]
    last: Annotated[Port, Field(description="Last port of the window, included.")]


PortOrRange = Annotated[
    int | Annotated[str, Field(pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?$", max_length=11)],
    Field(json_schema_extra=extension(int_or_string=True)),
]


class Networking(Model):
    host_network: Annotated[
        bool, Field(description="Engines use their node's network; every port is then claimed.")
    ] = False
    interface: Annotated[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$", max_length=15)] | None,
        Field(description="Network interface on the host network; default: the operator's configuration."),
    ] = None
    kv_ports: Annotated[
        KvPorts | None, Field(description="Window of this deployment; default: the operator's, 22000-29999.")
    ] = None
    reserved_ports: Annotated[
        list[PortOrRange], Field(max_length=256, description="Ports that others use: numbers or `first-last`.",
                                 json_schema_extra=extension(list_type="atomic"))
    ] = []  # fmt: skip


class Gang(Model):
    scheduler: Annotated[Literal["Volcano"], Field(description="Gang scheduler.")] = "Volcano"
    queue: Annotated[Name | None, Field(description="Queue of the PodGroups.")] = None
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)] = {}


class Rollout(Model):
    strategy: Annotated[
        Literal["Auto", "Surge", "Replace", "Recreate"], Field(description="How a new revision comes in.")
    ] = "Auto"
    max_unavailable: Annotated[int | None, Field(ge=1, le=512, description="Engines that may be away at once.")] = None
    paused: Annotated[bool, Field(description="Keep the old revision serving.")] = False


class LocalReference(Model):
    name: Name


class Spec(Model):
    model: Annotated[ModelSpec, Field(description="What is served.")]
    engine: Annotated[Engine, Field(description="The engine that serves it.")]
    accelerator: Annotated[Accelerator, Field(description="The NPUs it runs on.")]
    kvpp: Annotated[Kvpp, Field(description="KV pipeline parallelism.")] = Kvpp()
    kv_cache: Annotated[KvCache, Field(description="Cache layout of prefill and decode.")] = KvCache()
    kv_transfer: Annotated[KvTransfer, Field(description="KV transfer between engines.")] = KvTransfer()
    unified: Annotated[PrefillRole | None, Field(description="Engines that prefill and decode.")] = None
    prefill: Annotated[PrefillRole | None, Field(description="Engines that prefill; goes with decode.")] = None
    decode: Annotated[DecodeRole | None, Field(description="Engines that decode; goes with prefill.")] = None
    pooling: Annotated[Pooling | None, Field(description="Shared KV store.")] = None
    router: Annotated[Router | None, Field(description="What stands in front of prefill and decode.")] = None
    api_key_secret_ref: Annotated[SecretKey | None, Field(description="API key of engines and router.")] = None
    networking: Annotated[Networking, Field(description="Pod or host network, and kv ports.")] = Networking()
    gang: Annotated[Gang | None, Field(description="All pods of an engine are scheduled together.")] = None
    rollout: Annotated[Rollout, Field(description="How changes come in.")] = Rollout()
    suspend: Annotated[bool, Field(description="The operator stops reconciling this object; what runs, runs.")] = False
    image_pull_secrets: Annotated[
        list[LocalReference],
        Field(
            max_length=16,
            description="Secrets for pulling images.",
            json_schema_extra=extension(list_type="map", list_map_keys=["name"]),
        ),
    ] = []

    def roles(self) -> dict[RoleName, PrefillRole | DecodeRole]:
        """The roles that are set, in a fixed order."""
        present = {"unified": self.unified, "prefill": self.prefill, "decode": self.decode}
        return {name: role for name in ROLES if (role := present[name]) is not None}


Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
"""A DNS label."""


LabelKey = Annotated[
    str,
    Field(
        pattern=r"^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?/)?[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$", max_length=317
    ),
]
LabelValue = Annotated[str, Field(pattern=r"^([a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?)?$", max_length=63)]


class Metadata(Model):
    """An object's metadata as an API server takes it. Rendering needs the first four; the server writes the last ones.

    A field that is missing here is ignored: the server of tomorrow may write it.
    """

    model_config = {**Model.model_config, "extra": "ignore"}

    name: Label
    namespace: Label = "default"
    uid: str = ""
    generation: int = 0
    labels: dict[LabelKey, LabelValue] = {}
    annotations: dict[LabelKey, str] = {}
    finalizers: list[str] = []
    owner_references: list[JsonObject] = []
    generate_name: Any = None
    resource_version: Any = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    managed_fields: Any = None
    self_link: Any = None


class KVPPDeployment(Model):
    """One model served by vLLM Ascend with KVPP."""

    api_version: Literal["serving.kvpp.io/v1alpha1"]
    kind: Literal["KVPPDeployment"]
    metadata: Metadata
    spec: Spec
    status: Annotated[JsonObject | None, Field(description="Written by the operator.")] = None


def dump(model: Model) -> dict[str, Any]:
    """The wire form, defaults included, absent members left out."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
