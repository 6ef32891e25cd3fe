"""`status` of a KVPPDeployment, as the CRD describes it. The operator writes it from plain values (report.status)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kvpp_operator.api.base import Model, extension

Line = Annotated[str, Field(max_length=4096)]
Word = Annotated[str, Field(max_length=253)]
Count = Annotated[int, Field(ge=0)]
Moment = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class Condition(Model):
    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=32768)]
    observed_generation: Count = 0
    last_transition_time: Moment


class FindingStatus(Model):
    rule: Word
    severity: Literal["error", "warning"]
    path: Line
    value: Annotated[Line | None, Field(description="What the user wrote, shortened.")] = None
    message: Line
    source: Line
    fix: Line
    validation: Annotated[
        Word | None, Field(description="How far the matter is validated on hardware: never, ci, seed.")
    ] = None


class RoleStatus(Model):
    wanted: Count
    ready: Count
    updated: Annotated[Count, Field(description="Engines of the present revision.")]
    summary: Annotated[Word, Field(description="ready/wanted.")]


class EngineStatus(Model):
    role: Word
    index: Count
    revision: Word
    ready: bool
    reason: Annotated[Line, Field(description="What holds the engine up, in the words of whoever does.")]
    nodes: Annotated[list[Word], Field(max_length=1024)] = []
    kv_port: Annotated[int | None, Field(description="First port of the kv block.")] = None
    kv_port_last: Annotated[int | None, Field(description="Last port of the kv block, included.")] = None


class Estimate(Model):
    multiplier: Annotated[
        str, Field(max_length=32, description="Capacity with KVPP over capacity without, as text: 6.24.")
    ]
    method: Line


class Measured(Model):
    tokens: Count
    engines: Count
    time: Moment


class Capacity(Model):
    estimate: Estimate | None = None
    measured: Measured | None = None


class RouterStatus(Model):
    address: Annotated[Line, Field(description="Where requests go, as host:port.")]
    wanted: Annotated[Count, Field(description="Router pods that are wanted.")]
    ready: Annotated[Count, Field(description="Router pods that take requests.")]
    members: Annotated[
        Count | None, Field(description="Engines behind every router pod; absent until one has said.")
    ] = None
    revision: Annotated[Word | None, Field(description="Revision whose engines get requests.")] = None


class RulesStatus(Model):
    version: Word


class Status(Model):
    observed_generation: Annotated[
        Count | None, Field(description="Generation of the spec that this status is about.")
    ] = None
    conditions: Annotated[
        list[Condition], Field(max_length=16, json_schema_extra=extension(list_type="map", list_map_keys=["type"]))
    ] = []
    findings: Annotated[list[FindingStatus], Field(max_length=64, json_schema_extra=extension(list_type="atomic"))] = []
    revision: Annotated[Word | None, Field(description="Hash of the revision that the engines belong to.")] = None
    update_available: Annotated[
        Word | None, Field(description="Hash that this operator would render today for the same spec.")
    ] = None
    model: Annotated[Line | None, Field(description="Name that the model is served under.")] = None
    roles: Annotated[dict[str, RoleStatus], Field(max_length=3)] = {}
    engines: Annotated[list[EngineStatus], Field(max_length=128, json_schema_extra=extension(list_type="atomic"))] = []
    engine_count: Count | None = None
    capacity: Capacity | None = None
    router: RouterStatus | None = None
    rules: RulesStatus | None = None
