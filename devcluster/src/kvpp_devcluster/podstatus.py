"""The status that a kubelet would write for a pod, from its containers' states.  Pure: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]


@dataclass
class Container:
    """One container as it runs: the only mutable thing here, changed by kubelet.py alone."""

    name: str
    spec: Json
    is_init: bool
    state: Json
    last_state: Json = field(default_factory=dict)
    restart_count: int = 0
    is_ready: bool = False

    @property
    def is_sidecar(self) -> bool:
        """An init container with restartPolicy Always keeps running beside the others."""
        return self.is_init and self.spec.get("restartPolicy") == "Always"

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        ended: Json | None = self.state.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    @property
    def is_done_initializing(self) -> bool:
        return self.is_running if self.is_sidecar else self.exit_code == 0

    def status(self) -> Json:
        """Write the ContainerStatus; `started` follows readiness where a startup probe guards it."""
        is_started = self.is_running and (self.is_ready or "startupProbe" not in self.spec)
        is_ready = self.exit_code == 0 if self.is_init and not self.is_sidecar else self.is_running and self.is_ready
        has_run = self.is_running or "terminated" in self.state or bool(self.last_state)
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": f"simulated://{self.spec['image']}" if has_run else "",
            "containerID": f"simulated://{self.name}-{self.restart_count}" if has_run else "",
            "ready": is_ready,
            "started": is_started,
            "restartCount": self.restart_count,
            "state": self.state,
            "lastState": self.last_state,
        }


def containers_of(pod: Json) -> list[Container]:
    """Take over the containers of a pod in the states that its status tells; init containers stand first."""
    spec, status = pod["spec"], pod.get("status", {})
    seen = {
        entry["name"]: entry
        for entry in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    }
    first = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    made = []
    for is_init, entries in ((True, spec.get("initContainers", [])), (False, spec["containers"])):
        for entry in entries:
            old = seen.get(entry["name"], {})
            made.append(
                Container(
                    name=entry["name"],
                    spec=entry,
                    is_init=is_init,
                    state=old.get("state") or {"waiting": {"reason": first}},
                    last_state=old.get("lastState", {}),
                    restart_count=old.get("restartCount", 0),
                    is_ready=old.get("ready", False),
                )
            )
    return made


def phase(containers: list[Container], restart_policy: str) -> str:
    """Derive the phase as the kubelet does: by what has run, and by whether anything will run again."""
    work = [container for container in containers if not container.is_init]
    inits = [container for container in containers if container.is_init]
    if any(c.exit_code not in (None, 0) for c in inits) and restart_policy == "Never":
        return "Failed"
    if not all(c.is_done_initializing for c in inits) and not any(c.is_running or c.last_state for c in work):
        return "Pending"
    codes = [container.exit_code for container in work]
    if restart_policy != "Always" and None not in codes:
        if not any(codes):
            return "Succeeded"
        if restart_policy == "Never":
            return "Failed"
    has_run = any(c.is_running or c.last_state or c.exit_code is not None for c in work)
    return "Running" if has_run else "Pending"


def build(
    pod: Json, old: Json, containers: list[Container], addresses: Mapping[str, str], *, now: str, final: str = ""
) -> Json:
    """Write the whole status; `old` is the last one, whose times stay for conditions that did not change.

    `addresses` has `pod` and `host`; `final` overrules the phase when the pod is being ended from outside.
    """
    became = final or phase(containers, pod["spec"].get("restartPolicy", "Always"))
    inits = [container for container in containers if container.is_init]
    work = [container for container in containers if not container.is_init]
    is_initialized = all(container.is_done_initializing for container in inits)
    unready = [c.name for c in [*(i for i in inits if i.is_sidecar), *work] if not c.status()["ready"]]
    is_ended = became in ("Succeeded", "Failed")
    why = {"reason": "PodCompleted"} if became == "Succeeded" else {"reason": "PodFailed"} if is_ended else {}
    if unready and not is_ended:
        why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    gates = {gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])}
    passed = {entry["type"] for entry in pod.get("status", {}).get("conditions", []) if entry["status"] == "True"}
    is_ready = not unready and not is_ended
    conditions = [
        _condition("PodReadyToStartContainers", not is_ended, {}),
        _condition("Initialized", is_initialized, {} if is_initialized else {"reason": "ContainersNotInitialized"}),
        _condition("ContainersReady", is_ready, why),
        _condition("Ready", is_ready and gates <= passed, why or ({} if gates <= passed else _GATED)),
    ]
    before = {entry["type"]: entry for entry in old.get("conditions", [])}
    for condition in conditions:
        last = before.get(condition["type"], {})
        is_same = last.get("status") == condition["status"]
        condition["lastTransitionTime"] = last["lastTransitionTime"] if is_same else now
    return {
        "phase": became,
        "conditions": conditions,
        "hostIP": addresses["host"],
        "hostIPs": [{"ip": addresses["host"]}],
        "podIP": addresses["pod"],
        "podIPs": [{"ip": addresses["pod"]}],
        "startTime": old.get("startTime", now),
        "observedGeneration": pod["metadata"].get("generation", 0),
        "initContainerStatuses": [container.status() for container in inits],
        "containerStatuses": [container.status() for container in work],
    }


_GATED = {"reason": "ReadinessGatesNotReady"}


def _condition(kind: str, holds: bool, why: Json) -> Json:  # noqa: FBT001  (a table of three columns)
    return {"type": kind, "status": "True" if holds else "False", "reason": None, "message": None, **why}


def is_within(wish: Any, live: Any) -> bool:
    """Say whether every value of `wish` stands in `live` already; lists of conditions compare by their type."""
    if isinstance(wish, dict):
        return isinstance(live, dict) and all(
            not live.get(key) if value in (None, {}, "") else is_within(value, live.get(key))
            for key, value in wish.items()
        )
    if isinstance(wish, list) and wish and isinstance(wish[0], dict) and "type" in wish[0]:
        by_type = {entry["type"]: entry for entry in live or []}
        return all(is_within(entry, by_type.get(entry["type"])) for entry in wish)
    if isinstance(wish, list):
        return len(wish) == len(live or []) and all(is_within(a, b) for a, b in zip(wish, live or [], strict=True))
    return bool(wish == live)
