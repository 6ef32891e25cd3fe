"""Live workloads and pods → what each engine is doing, in the words of whoever holds it up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvpp_operator import names
from kvpp_operator.manifest import Manifest

MESSAGE_LIMIT = 512


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


def engine_states(
    wanted: Iterable[WantedEngine], owned: Iterable[Manifest], pods: Iterable[Manifest]
) -> Iterator[EngineState]:
    live = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in owned}
    by_engine: dict[tuple[str, ...], list[Manifest]] = {}
    for pod in pods:
        by_engine.setdefault(identity(pod["metadata"].get("labels", {})), []).append(pod)
    for engine in wanted:
        workload = live.get((engine.workload["kind"], engine.workload["metadata"]["name"]))
        mine = by_engine.get(identity(engine.labels), [])
        ready = workload is not None and is_ready(workload)
        yield EngineState(
            role=engine.labels[names.ROLE],
            index=int(engine.labels[names.ENGINE]),
            revision=engine.labels[names.REVISION],
            ready=ready,
            reason="Ready" if ready else why_not(workload, mine),
            nodes=tuple(sorted({node for pod in mine if (node := pod.get("spec", {}).get("nodeName"))})),
            kv_port=engine.kv_port,
            kv_port_last=engine.kv_port_last,
        )


def identity(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(key, "") for key in (names.ROLE, names.ENGINE, names.REVISION))


def is_ready(workload: Manifest) -> bool:
    """The workload's controller has seen the newest wish and its one replica is ready."""
    status = workload.get("status", {})
    seen = status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 0)
    current = status.get("updatedReplicas", 0) >= 1
    return bool(seen and current and status.get("readyReplicas", 0) >= 1)


def why_not(workload: Manifest | None, pods: Iterable[Manifest]) -> str:
    """The first thing that holds the engine up, from the workload down to a container."""
    if workload is None:
        return "NotCreated: the engine's workload does not exist yet"
    for condition in workload.get("status", {}).get("conditions", []):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return short(f"{condition.get('reason', 'FailedCreate')}: {condition.get('message', '')}")
    reasons = [reason for pod in pods for reason in pod_reasons(pod)]
    return reasons[0] if reasons else "Starting: waiting for the pod"


def pod_reasons(pod: Manifest) -> Iterator[str]:
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        yield "Terminating: the pod is being stopped"
    for condition in status.get("conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield short(f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}")
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        yield from container_reasons(container)
    if status.get("phase") == "Running":
        yield "Loading: the engine runs but is not ready yet"


def container_reasons(container: Mapping[str, Any]) -> Iterator[str]:
    waiting = container.get("state", {}).get("waiting")
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
    if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        detail = (ended or {}).get("message") or waiting.get("message") or ""
        yield short(f"{waiting['reason']}: {detail}")
    elif ended and ended.get("exitCode"):
        yield short(f"{ended.get('reason', 'Error')}: exit code {ended['exitCode']}. {ended.get('message', '')}")
    elif waiting:
        yield "Creating: the container is being created"


def short(text: str) -> str:
    """One line, bounded: status has a size limit and people read the start."""
    line = " ".join(text.split()).rstrip(":. ")
    return line if len(line) <= MESSAGE_LIMIT else f"{line[: MESSAGE_LIMIT - 1]}…"
