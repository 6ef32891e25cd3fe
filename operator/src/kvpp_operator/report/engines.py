"""Live workloads and pods → what each engine is doing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kvpp_operator import names
from kvpp_operator.manifest import Manifest
from kvpp_operator.report.why import WAITING_FOR_POOL, why_not, with_memory


@dataclass(frozen=True)
class EngineState:
    role: str
    index: int
    revision: str
    ready: bool
    reason: str
    nodes: tuple[str, ...]
    kv_port: int | None
    kv_port_last: int | None

    def to_json(self) -> dict[str, Any]:
        ports = {} if self.kv_port is None else {"kvPort": self.kv_port, "kvPortLast": self.kv_port_last}
        return {
            "role": self.role, "index": self.index, "revision": self.revision, "ready": self.ready,
            "reason": self.reason, "nodes": list(self.nodes), **ports,
        }  # fmt: skip


@dataclass(frozen=True)
class WantedEngine:
    """An engine that should be there: its workload as wished, and its kv block."""

    workload: Manifest
    kv_port: int | None
    kv_port_last: int | None

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.workload["metadata"]["labels"]
        return labels

    def is_of(self, state: EngineState) -> bool:
        return identity(self.labels) == (state.role, str(state.index), state.revision)

    def pods(self, pods: Iterable[Manifest]) -> list[str]:
        """Names of the engine's pods among all."""
        mine = identity(self.labels)
        return [pod["metadata"]["name"] for pod in pods if identity(pod["metadata"].get("labels", {})) == mine]


def engine_states(
    wanted: Iterable[WantedEngine],
    owned: Iterable[Manifest],
    pods: Iterable[Manifest],
    *,
    told: Mapping[str, str] = MappingProxyType({}),
    before: Iterable[Mapping[str, Any]] = (),
) -> Iterator[EngineState]:
    """`told`: what events say about workloads and pods, by name. `before`: the last `status.engines`, which remembers the
    failure of pods that are gone: LeaderWorkerSet makes a whole group anew when one container ends.
    """
    live = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in owned}
    last = {key_in_status(one): one.get("reason", "") for one in before}
    by_engine: dict[tuple[str, ...], list[Manifest]] = {}
    for pod in (pods := list(pods)):
        by_engine.setdefault(identity(pod["metadata"].get("labels", {})), []).append(pod)
    pool = [pod for pod in pods if names.POOL in pod["metadata"].get("labels", {})]
    for engine in wanted:
        workload = live.get((engine.workload["kind"], engine.workload["metadata"]["name"]))
        mine = by_engine.get(identity(engine.labels), [])
        role, index, revision = (
            engine.labels[names.ROLE],
            int(engine.labels[names.ENGINE]),
            engine.labels[names.REVISION],
        )
        ready = workload is not None and is_ready(workload, mine)
        before_that = last.get((role, index, revision), "")
        yield EngineState(
            role=role,
            index=index,
            revision=revision,
            ready=ready,
            reason="Ready"
            if ready
            else with_memory(why_not(workload, mine, size_of(engine.workload), told, pool), before_that),
            nodes=tuple(sorted({node for pod in mine if (node := pod.get("spec", {}).get("nodeName"))})),
            kv_port=engine.kv_port,
            kv_port_last=engine.kv_port_last,
        )


def key_in_status(engine: Mapping[str, Any]) -> tuple[Any, ...]:
    return engine.get("role"), engine.get("index"), engine.get("revision")


def identity(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(key, "") for key in (names.ROLE, names.ENGINE, names.REVISION))


def size_of(workload: Manifest) -> int:
    """Pods of the engine."""
    template = workload.get("spec", {}).get("leaderWorkerTemplate", {})
    return int(template.get("size", 1))


def is_ready(workload: Manifest, pods: Iterable[Manifest]) -> bool:
    """A Deployment says so itself, once it has seen the newest wish. Of a LeaderWorkerSet the pods are looked at: its status
    names no generation, and lags behind a group that is being made anew (v0.8, v0.10).
    """
    status = workload.get("status", {})
    if workload["kind"] == "LeaderWorkerSet":
        return sum(pod_is_ready(pod) for pod in pods) >= size_of(workload)
    seen = status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 0)
    current = status.get("updatedReplicas", 0) >= 1
    return bool(seen and current and status.get("readyReplicas", 0) >= 1)


def pod_is_ready(pod: Manifest) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


TELLING = (
    "FailedCreate",
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedCreatePodSandBox",
    "InspectFailed",
)
"""Reasons of events that say why there is no pod, or no container in it. `Unhealthy` is not among them: while a model loads, a
startup probe fails every ten seconds."""

FROM_EVENTS = ("Starting:", "Creating:", WAITING_FOR_POOL, *(f"{reason}:" for reason in TELLING))


def unexplained(states: Iterable[EngineState]) -> list[EngineState]:
    """Engines that wait for pods or containers, and nothing in what we watch says why: events may, or did."""
    return [state for state in states if not state.ready and state.reason.startswith(FROM_EVENTS)]


def waits_long(states: Iterable[EngineState], before: Iterable[Mapping[str, Any]]) -> list[EngineState]:
    """Those that were unexplained at the last look too: every engine is without a pod for a moment."""
    last = {key_in_status(one) for one in before if one.get("reason", "").startswith(FROM_EVENTS)}
    return [state for state in unexplained(states) if (state.role, state.index, state.revision) in last]
