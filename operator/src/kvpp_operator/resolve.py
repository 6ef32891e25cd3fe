"""Spec + operator configuration → what it means: model facts, release, and per role chip, devices, nodes, merged settings.

Rules judge this value and the planner decides from it, so each derived number stands here once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvpp_operator import versions
from kvpp_operator.api.base import JsonObject
from kvpp_operator.api.model import AcceleratorOverride, EnvVar
from kvpp_operator.api.role import DecodeRole, PrefillRole, Scheduler, Speculative
from kvpp_operator.api.v1alpha1 import KVPPDeployment, RoleName, Spec
from kvpp_operator.catalogue import chips, models
from kvpp_operator.catalogue.chips import Chip
from kvpp_operator.catalogue.models import ModelFacts
from kvpp_operator.configuration import Configuration
from kvpp_operator.engine_flags import FlagCatalogue, ParsedArguments, catalogue, parse
from kvpp_operator.ledger.window import Window, kv_window
from kvpp_operator.ports import PortRange, kv_block_length
from kvpp_operator.versions import Release


@dataclass(frozen=True)
class Accelerator:
    """A role's NPUs after role, spec, operator configuration and chip have spoken, in this order."""

    chip: Chip
    resource_name: str
    devices_per_node: int
    interconnect: str
    driver_mounts: str
    huge_pages: str | None
    env_preset: bool


@dataclass(frozen=True)
class Written:
    """Raw settings at one place of the spec: `spec.engine` or a role."""

    path: str
    extra_args: tuple[str, ...]
    arguments: ParsedArguments
    additional_config: JsonObject
    env: tuple[EnvVar, ...]
    pod_template: JsonObject


@dataclass(frozen=True)
class ResolvedRole:
    name: RoleName
    role: PrefillRole | DecodeRole
    kvpp: bool
    accelerator: Accelerator
    written: tuple[Written, ...]
    """What the user wrote for this role, the general first; later ones win."""
    on_host_network: bool = False

    @property
    def path(self) -> str:
        return f"spec.{self.name}"

    @property
    def replicas(self) -> int:
        return self.role.replicas

    @property
    def tensor(self) -> int:
        return self.role.parallelism.tensor

    @property
    def pipeline(self) -> int:
        return self.role.parallelism.pipeline

    @property
    def data(self) -> int:
        return self.role.parallelism.data

    @property
    def prefill_context(self) -> int:
        return self.role.parallelism.prefill_context

    @property
    def scheduler(self) -> Scheduler:
        return self.role.scheduler

    @property
    def speculative(self) -> Speculative | None:
        return self.role.speculative

    @property
    def devices(self) -> int:
        """NPUs of one engine: one for each rank."""
        return self.role.parallelism.world

    @property
    def nodes(self) -> int:
        """Pods of one engine: ceil(world / NPUs per node) (docs/nodes.md)."""
        return -(-self.devices // self.accelerator.devices_per_node)

    @property
    def devices_per_pod(self) -> int:
        """NPUs that one pod asks for; the world must divide by the nodes (rule NODE002)."""
        return self.devices // self.nodes

    @property
    def kv_block_length(self) -> int:
        """Ports of one engine's kv block: one number a rank, one control port a DP replica."""
        return kv_block_length(self.data, self.pipeline, self.prefill_context, self.tensor)

    @property
    def runs_model_runner_v2(self) -> bool:
        """PCP, and PP with a DSpark or Eagle3 draft, run on Model Runner V2 only; DSA-CP on V1 only (launch facts 11.1, Runner)."""
        if self.additional_config.get("enable_dsa_cp") in (True, 1, "true", "1"):
            return False
        drafted = self.speculative is not None and self.speculative.method in ("DSpark", "Eagle3")
        return self.prefill_context > 1 or (self.pipeline > 1 and drafted)

    @cached_property
    def additional_config(self) -> JsonObject:
        """The user's additional config, engine-wide and role merged; ours comes on top at rendering."""
        merged: JsonObject = {}
        for written in self.written:
            merged = deep_merge(merged, written.additional_config)
        return merged

    @cached_property
    def env(self) -> tuple[EnvVar, ...]:
        """Engine-wide and role environment; a name given again replaces the earlier one in its place."""
        by_name: dict[str, EnvVar] = {}
        for written in self.written:
            by_name |= {variable.name: variable for variable in written.env}
        return tuple(by_name.values())

    @property
    def extra_args(self) -> list[str]:
        return [token for written in self.written for token in written.extra_args]

    def asks(self, flag: str) -> bool:
        """Whether the user's own arguments name that flag."""
        return any(written.arguments.of(flag) for written in self.written)


@dataclass(frozen=True)
class Resolved:
    """One parsed deployment with everything that follows from it alone."""

    deployment: KVPPDeployment
    configuration: Configuration
    model: ModelFacts | None
    """None when the profile is unknown (rule MODEL001 says so)."""
    release: Release
    """The release whose rules judge; for an unknown version the nearest known one (rule VERSION002 says so)."""
    flags: FlagCatalogue
    roles: tuple[ResolvedRole, ...]

    @property
    def name(self) -> str:
        return self.deployment.metadata.name

    @property
    def namespace(self) -> str:
        return self.deployment.metadata.namespace

    @property
    def spec(self) -> Spec:
        return self.deployment.spec

    @property
    def is_disaggregated(self) -> bool:
        return any(role.name == "decode" for role in self.roles)

    @property
    def kvpp_roles(self) -> tuple[ResolvedRole, ...]:
        return tuple(role for role in self.roles if role.kvpp)

    @property
    def npus_per_node(self) -> int:
        """Of the largest node that a role runs on: its transport draws ports from the widest range. 0 without roles."""
        return max((role.accelerator.devices_per_node for role in self.roles), default=0)

    @property
    def reserved_ports(self) -> list[PortRange]:
        """What the operator's configuration and the user list as used by others; rule NET002 says what is no range."""
        listed = (*self.configuration.reserved_ports, *self.spec.networking.reserved_ports)
        return [block for entry in listed if (block := as_port_range(entry)) is not None]

    @property
    def kv_window(self) -> Window:
        """Where kv blocks may lie: the deployment's window, else the operator's, without what is reserved."""
        networking, configuration = self.spec.networking, self.configuration
        chosen = networking.kv_ports or configuration.kv_ports
        first, last = sorted((chosen.first, chosen.last))  # rule NET001 says when they are out of order
        return kv_window(self.npus_per_node, PortRange(first, last), self.reserved_ports)

    def role(self, name: RoleName) -> ResolvedRole | None:
        return next((role for role in self.roles if role.name == name), None)

    def at_least(self, release: str) -> bool:
        return self.release >= versions.BY_NAME[release]


def resolve(deployment: KVPPDeployment, configuration: Configuration) -> Resolved:
    """What a parsed deployment means in this cluster. Never fails: what can't be known is judged by a rule."""
    spec = deployment.spec
    release = release_of(spec)
    flags = catalogue(release.name)
    roles = tuple(resolve_roles(spec, configuration, flags))
    return Resolved(deployment, configuration, model_of(spec), release, flags, roles)


def as_port_range(entry: int | str) -> PortRange | None:
    """Ports as the user lists them, None when they are none."""
    try:
        return PortRange.parse(entry)
    except ValueError:
        return None


def release_of(spec: Spec) -> Release:
    chosen = versions.known(spec.engine.version)
    if chosen is None and spec.engine.rules_from is not None:
        chosen = versions.known(spec.engine.rules_from)
    return chosen or versions.nearest(spec.engine.version)


def model_of(spec: Spec) -> ModelFacts | None:
    given = spec.model.architecture
    if given is None:
        return models.BY_NAME.get(spec.model.profile or "")
    return ModelFacts(
        name=spec.model.served_name or "this model",
        attention=given.attention,
        layers=given.layers,
        moe=given.moe,
        kv_lora_rank=given.kv_lora_rank,
        rope_head_dim=given.rope_head_dim,
        indexer_head_dim=given.indexer_head_dim,
        indexer_layers=given.layers
        if given.indexer_layers is None and given.indexer_head_dim
        else given.indexer_layers or 0,
        draft_layers=given.draft_layers,
        draft_shares_target_cache=given.draft_shares_target_cache,
        multimodal=given.multimodal,
    )


def resolve_roles(spec: Spec, configuration: Configuration, flags: FlagCatalogue) -> Iterator[ResolvedRole]:
    general = written_at("spec.engine", spec.engine, flags)
    for name, role in spec.roles().items():
        yield ResolvedRole(
            name=name,
            role=role,
            kvpp=spec.kvpp.enabled and name != "decode",
            accelerator=accelerator_of(spec, role.accelerator, configuration),
            written=(general, written_at(f"spec.{name}", role, flags)),
            on_host_network=spec.networking.host_network,
        )


def written_at(path: str, place: Any, flags: FlagCatalogue) -> Written:
    return Written(
        path=path,
        extra_args=tuple(place.extra_args),
        arguments=parse(place.extra_args, flags),
        additional_config=place.additional_config,
        env=tuple(place.env),
        pod_template=place.pod_template.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def accelerator_of(spec: Spec, override: AcceleratorOverride, configuration: Configuration) -> Accelerator:
    chip = chips.BY_NAME[override.chip or spec.accelerator.chip]
    # What the spec says about its own chip does not hold for a role on another chip.
    general = spec.accelerator if chip.name == spec.accelerator.chip else AcceleratorOverride()
    cluster = configuration.chips.get(chip.name)

    def first(field: str, default: Any) -> Any:
        for place in (override, general, cluster):
            if (value := getattr(place, field, None)) is not None:
                return value
        return default

    return Accelerator(
        chip=chip,
        resource_name=first("resource_name", chip.resource_name),
        devices_per_node=first("devices_per_node", chip.devices_per_node),
        interconnect=first("interconnect", chip.interconnect),
        driver_mounts=first("driver_mounts", configuration.driver_mounts),
        huge_pages=first("huge_pages", None),
        env_preset=first("env_preset", "Default") == "Default",
    )


def deep_merge(under: JsonObject, over: JsonObject) -> JsonObject:
    """JSON merge: maps by key, everything else replaced; neither argument is changed."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = deep_merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
