"""The plan: every decision as data. Renderers trust it and fill in no defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kvpp_operator.api.v1alpha1 import RoleName
from kvpp_operator.engine_ports import EnginePorts
from kvpp_operator.plan.pool import PoolPlan
from kvpp_operator.resolve import Resolved, ResolvedRole

KvRole = Literal["kv_producer", "kv_consumer", "kv_both"]


@dataclass(frozen=True)
class Volume:
    """A volume of the pod and where the engine's container sees it."""

    name: str
    source: dict[str, Any]
    """The volume's source as in a PodSpec, e.g. `{"hostPath": {...}}`."""
    mount_path: str
    read_only: bool = True
    sub_path: str | None = None


@dataclass(frozen=True)
class Weights:
    """Where the engine finds a model: the positional argument, and what must be mounted or set for it."""

    model: str
    volumes: tuple[Volume, ...] = ()
    env: tuple[dict[str, Any], ...] = ()
    """EnvVars as in a Pod, secrets by reference only."""
    revision: str | None = None


@dataclass(frozen=True)
class Connector:
    """One KV connector of a role. `port` says that it carries the engine's kv block."""

    name: Literal["MooncakeConnectorV2", "AscendStoreConnector"]
    kv_role: KvRole
    port: bool = False
    extra: dict[str, Any] | None = None


@dataclass(frozen=True)
class RolePlan:
    """All engines of a role: equal but for index and ports."""

    resolved: ResolvedRole
    image: str
    pull_policy: str
    weights: Weights
    draft: Weights | None
    served_name: str
    trust_remote_code: bool
    connectors: tuple[Connector, ...]
    model_runner_v2: bool
    startup_seconds: int
    shutdown_seconds: int
    shared_memory: str
    """A Kubernetes quantity."""
    cpus: int
    interface: str
    apart_from: RoleName | None
    """The role whose pods must not share a node with ours."""

    @property
    def name(self) -> RoleName:
        return self.resolved.name

    @property
    def has_transfer(self) -> bool:
        return bool(self.connectors)

    @property
    def on_host_network(self) -> bool:
        return self.resolved.on_host_network


@dataclass(frozen=True)
class EnginePlan:
    role: RoleName
    index: int
    ports: EnginePorts


@dataclass(frozen=True)
class Plan:
    resolved: Resolved
    roles: tuple[RolePlan, ...]
    engines: tuple[EnginePlan, ...]
    pool: PoolPlan | None = None

    def role(self, name: RoleName) -> RolePlan:
        return next(role for role in self.roles if role.name == name)
