"""A role: unified, prefill or decode. Defaults that depend on the role are defaults of that role's class."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kvpp_operator.api.base import Duration, Model, Port, PreservedObject, Quantity, Size, extension
from kvpp_operator.api.model import AcceleratorOverride, Arguments, Environment, PodTemplate, Source

GraphMode = Literal["Eager", "Piecewise", "FullDecodeOnly", "FullAndPiecewise", "Full"]
SpeculativeMethod = Literal["MTP", "DSpark", "Eagle3", "DFlash"]
IntList = extension(list_type="atomic")


class Parallelism(Model):
    tensor: Annotated[Size, Field(description="TP: `--tensor-parallel-size`.")] = 1
    pipeline: Annotated[Size, Field(description="PP: `--pipeline-parallel-size`.")] = 1
    data: Annotated[Size, Field(description="DP: `--data-parallel-size`.")] = 1
    prefill_context: Annotated[Size, Field(description="PCP: `--prefill-context-parallel-size`.")] = 1
    decode_context: Annotated[Size, Field(description="DCP: `--decode-context-parallel-size`.")] = 1
    pipeline_layers: Annotated[
        list[Size] | None,
        Field(
            max_length=1024,
            description="Layers of each pipeline stage: `VLLM_PP_LAYER_PARTITION`.",
            json_schema_extra=IntList,
        ),
    ] = None
    expert: Annotated[bool, Field(description="EP: `--enable-expert-parallel`.")] = False

    @property
    def kvpp_group(self) -> int:
        """Ranks that share one KV cache: TP × PCP of one DP replica and one PP stage (seed guide, Configuration Parameters)."""
        return self.tensor * self.prefill_context

    @property
    def world(self) -> int:
        """Ranks of one engine, one NPU each. DCP re-uses the TP ranks."""
        return self.data * self.pipeline * self.prefill_context * self.tensor

    @property
    def replica(self) -> int:
        """Ranks of one DP replica."""
        return self.pipeline * self.prefill_context * self.tensor


class Scheduler(Model):
    max_num_batched_tokens: Annotated[
        int | None, Field(ge=1, le=16_777_216, description="`--max-num-batched-tokens`.")
    ] = None
    max_num_seqs: Annotated[int | None, Field(ge=1, le=1_048_576, description="`--max-num-seqs`.")] = None
    gpu_memory_utilization: Annotated[
        float | None, Field(ge=0.01, le=1, description="`--gpu-memory-utilization`, a fraction of device memory.")
    ] = None
    chunked_prefill: Annotated[bool | None, Field(description="`--[no-]enable-chunked-prefill`.")] = None
    prefix_caching: Annotated[bool | None, Field(description="`--[no-]enable-prefix-caching`.")] = None
    async_scheduling: Annotated[bool | None, Field(description="`--[no-]async-scheduling`.")] = None


class Speculative(Model):
    """Speculative decoding with a fixed number of draft tokens; dynamic lengths have no field because KVPP refuses them."""

    method: Annotated[SpeculativeMethod, Field(description="Draft method.")]
    tokens: Annotated[int, Field(ge=1, le=16, description="`num_speculative_tokens`, fixed.")]
    draft_model: Annotated[Source | None, Field(description="Weights of a separate draft model.")] = None
    enforce_eager: Annotated[bool | None, Field(description="`enforce_eager` of the draft.")] = None


class Role(Model):
    replicas: Annotated[int, Field(ge=0, le=512, description="Number of engines.")] = 1
    parallelism: Annotated[Parallelism, Field(description="How one engine spreads over NPUs.")] = Parallelism()
    graph_capture_sizes: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]] | None,
        Field(max_length=256, description="`cudagraph_capture_sizes`, where graphs are on.", json_schema_extra=IntList),
    ] = None
    scheduler: Annotated[Scheduler, Field(description="Absent members leave the engine's default.")] = Scheduler()
    speculative: Annotated[Speculative | None, Field(description="Speculative decoding, fixed K.")] = None
    api_servers: Annotated[int | None, Field(ge=1, le=64, description="`--api-server-count`, head only.")] = None
    kv_port: Annotated[Port | None, Field(description="Pin of the first kv block.")] = None
    additional_config: Annotated[PreservedObject, Field(description="Merged into `--additional-config`.")] = {}
    extra_args: Annotated[Arguments, Field(description="Appended; checked against the version's flag catalogue.")] = []
    env: Annotated[Environment, Field(description="Environment of the engine's container.")] = []
    shared_memory: Annotated[
        Quantity | None, Field(description="Size of `/dev/shm`; default by the number of devices.")
    ] = None
    startup_timeout: Annotated[
        Duration | None,
        Field(
            description="Probe budget, `VLLM_ENGINE_READY_TIMEOUT_S` and `HCCL_CONNECT_TIMEOUT` together; default by model size."
        ),
    ] = None
    shutdown_timeout: Annotated[Duration, Field(description="`--shutdown-timeout` and the grace period.")] = "2m"
    accelerator: Annotated[AcceleratorOverride, Field(description="On top of `spec.accelerator`.")] = (
        AcceleratorOverride()
    )
    pod_template: Annotated[PodTemplate, Field(description="Merged into the pods by the documented list keys.")] = (
        PodTemplate()
    )


class PrefillRole(Role):
    """Unified or prefill: the roles where KVPP works."""

    graph_mode: Annotated[GraphMode, Field(description="Always rendered; KVPP runs Eager or Piecewise.")] = "Eager"


class DecodeRole(Role):
    graph_mode: Annotated[GraphMode, Field(description="Always rendered.")] = "FullDecodeOnly"
