"""`spec.model`, `spec.engine` and `spec.accelerator`: what is served, by which engine, on which chip."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kvpp_operator.api.base import (
    NAMED_LIST,
    Argument,
    Model,
    Name,
    Path,
    PreservedObject,
    Quantity,
    Text,
    extension,
)

Attention = Literal["MLA", "SFA", "GQA", "MQA", "Hybrid"]
ChipName = Literal["A2", "A3", "950DT", "950PR"]
InterconnectName = Literal["HCCS", "RoCE", "UB", "UBoE"]
DriverMounts = Literal["Auto", "Host", "None"]


class Architecture(Model):
    """A model that the catalogue does not know: what the rules and the capacity estimate need of it."""

    attention: Annotated[Attention, Field(description="KVPP needs MLA or SFA without hybrid layers.")]
    layers: Annotated[int, Field(ge=1, le=1024, description="Hidden layers, draft layers not counted.")]
    moe: Annotated[bool, Field(description="Whether the model is a mixture of experts.")] = False
    kv_lora_rank: Annotated[int | None, Field(ge=1, le=65536, description="Width of the latent KV cache.")] = None
    rope_head_dim: Annotated[
        int | None, Field(ge=1, le=65536, description="Width of the rotary part of the cache.")
    ] = None
    indexer_head_dim: Annotated[int | None, Field(ge=1, le=65536, description="Width of the SFA indexer's cache.")] = (
        None
    )
    indexer_layers: Annotated[int | None, Field(ge=0, le=1024, description="Layers that carry an indexer cache.")] = (
        None
    )
    draft_layers: Annotated[int | None, Field(ge=0, le=64, description="MTP layers that come with the model.")] = None
    draft_shares_target_cache: Annotated[
        bool, Field(description="Whether the draft reads the target's KV caches; KVPP refuses that.")
    ] = False
    multimodal: Annotated[bool, Field(description="Whether the model takes more than text.")] = False


class SecretKey(Model):
    """One key of a Secret in the deployment's namespace."""

    name: Annotated[Name, Field(description="Name of the Secret.")]
    key: Annotated[Name, Field(description="Key in the Secret.")]


class ClaimSource(Model):
    claim_name: Annotated[
        Name, Field(description="PersistentVolumeClaim in the deployment's namespace, mounted read-only.")
    ]
    path: Annotated[Path | None, Field(description="Folder of the weights in the volume.")] = None


ABSOLUTE = r"^/+(([^/.]|\.[^/.]|\.\.[^/])[^/]*(/+|$)|\.(/+|$))*$"
"""An absolute path without a step back, which the API server refuses in a pod's host path."""
REPO = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?$"
"""A repository of a model hub, not its web address."""


class HostPathSource(Model):
    path: Annotated[Path, Field(pattern=ABSOLUTE, description="Folder of the weights, the same on every node.")]


class HubSource(Model):
    repo: Annotated[Text, Field(pattern=REPO, description="`organisation/name`.")]
    revision: Annotated[Text | None, Field(description="Branch, tag or commit.")] = None
    token_secret_ref: Annotated[SecretKey | None, Field(description="Access token, handed over by environment.")] = None


class ImageSource(Model):
    reference: Annotated[Text, Field(description="OCI image that holds the weights, mounted as an image volume.")]
    path: Annotated[Path | None, Field(description="Folder of the weights in the image.")] = None


SOURCES = ("persistentVolumeClaim", "hostPath", "huggingFace", "modelScope", "image")


class Source(Model):
    """Exactly one member is set (rule MODEL002)."""

    persistent_volume_claim: Annotated[ClaimSource | None, Field(description="Weights in a volume.")] = None
    host_path: Annotated[HostPathSource | None, Field(description="Weights in a folder of every node.")] = None
    hugging_face: Annotated[
        HubSource | None, Field(description="Weights from Hugging Face, fetched by the engine.")
    ] = None
    model_scope: Annotated[HubSource | None, Field(description="Weights from ModelScope, fetched by the engine.")] = (
        None
    )
    image: Annotated[ImageSource | None, Field(description="Weights in an OCI image.")] = None

    def chosen(self) -> list[str]:
        """Wire names of the members that are set."""
        return [name for name in SOURCES if name in self.model_dump(by_alias=True, exclude_none=True)]


class ModelSpec(Model):
    profile: Annotated[Name | None, Field(description="A model of the catalogue (`docs/models.md`).")] = None
    architecture: Annotated[Architecture | None, Field(description="Facts of a model outside the catalogue.")] = None
    source: Annotated[Source, Field(description="Where the weights are; exactly one kind of source.")]
    served_name: Annotated[
        Annotated[Text, Field(pattern=r"^[^-]")] | None,
        Field(
            description="`--served-model-name`; default: profile, else the source's last part, else the deployment's name."
        ),
    ] = None
    quantization: Annotated[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=253)] | None,
        Field(description="`--quantization`; `ascend` for every ModelSlim weight."),
    ] = None
    max_model_len: Annotated[int | None, Field(ge=1, le=16_777_216, description="`--max-model-len`, tokens.")] = None
    trust_remote_code: Annotated[bool | None, Field(description="`--trust-remote-code`; default: the profile's.")] = (
        None
    )


class Image(Model):
    repository: Annotated[Text | None, Field(description="Without tag or digest.")] = None
    tag: Annotated[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", max_length=128)] | None, Field()
    ] = None
    digest: Annotated[Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)] | None, Field()] = None
    pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"] | None, Field()] = None


class EnvVar(Model):
    """An environment variable of the engine's container, as in a Pod."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_.-][A-Za-z0-9_.-]*$", max_length=253)]
    value: Annotated[Argument | None, Field()] = None
    value_from: Annotated[PreservedObject | None, Field(description="As in a Pod's container.")] = None


class PodMetadata(Model):
    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] = {}
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)] = {}


class WorkerTemplate(Model):
    metadata: PodMetadata = PodMetadata()
    spec: Annotated[PreservedObject, Field(description="Fragment of a PodSpec, for node ranks above 0.")] = {}


class PodTemplate(Model):
    metadata: PodMetadata = PodMetadata()
    spec: Annotated[
        PreservedObject, Field(description="Fragment of a PodSpec; the engine's container is called `vllm`.")
    ] = {}
    worker: Annotated[WorkerTemplate, Field(description="On top, for node ranks above 0.")] = WorkerTemplate()


Arguments = Annotated[list[Argument], Field(max_length=256, json_schema_extra=extension(list_type="atomic"))]
Environment = Annotated[list[EnvVar], Field(max_length=256, json_schema_extra=NAMED_LIST)]


class Engine(Model):
    version: Annotated[
        str,
        Field(pattern=r"^(latest|[0-9][0-9A-Za-z.+!-]*)$", max_length=64,
              description="Version of vLLM Ascend (`0.30.0rc2`) or `latest`: picks image tag, flags and rules."),
    ]  # fmt: skip
    image: Annotated[Image, Field(description="Overrides the image, never the rules.")] = Image()
    rules_from: Annotated[
        str | None, Field(max_length=64, description="Judge an unknown version as this known one.")
    ] = None
    extra_args: Annotated[Arguments, Field(description="Appended to every role's command line.")] = []
    additional_config: Annotated[
        PreservedObject, Field(description="Merged into every role's `--additional-config`.")
    ] = {}
    env: Annotated[Environment, Field(description="Environment of every role.")] = []
    pod_template: Annotated[PodTemplate, Field(description="Merged into every role's pods.")] = PodTemplate()


class AcceleratorOverride(Model):
    """What a role may say differently from `spec.accelerator`."""

    chip: Annotated[ChipName | None, Field(description="Ascend chip of this role.")] = None
    resource_name: Annotated[
        Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$", max_length=253)] | None,
        Field(
            description="Extended resource of the device plugin; default by chip, else the operator's configuration."
        ),
    ] = None
    devices_per_node: Annotated[int | None, Field(ge=1, le=64, description="NPUs of one node.")] = None
    interconnect: Annotated[
        InterconnectName | None,
        Field(description="Picks transfer environment, huge pages and pool protocol; default by chip."),
    ] = None
    driver_mounts: Annotated[
        DriverMounts | None,
        Field(description="Mount the host's driver tree; only where the runtime does not inject it."),
    ] = None
    huge_pages: Annotated[Quantity | None, Field(description="`hugepages-2Mi` of a pod; `0` switches them off.")] = None
    env_preset: Annotated[
        Literal["Default", "None"] | None, Field(description="`None` leaves the chip's environment out.")
    ] = None


class Accelerator(AcceleratorOverride):
    chip: Annotated[ChipName, Field(description="Ascend chip: A2 (910B), A3 (910C), 950DT or 950PR.")]
