"""Router pods, and what they wrote down of themselves → whether requests get through, and if not, why.

A pod is ready when its agent says so: it has healthy engines of both roles behind it and its canary has passed. Why it is
not, which engines it has and whether KV moves stand in a ConfigMap, one key for each pod (router.reporter).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvpp_operator import names
from kvpp_operator.manifest import Key, Manifest, key_of
from kvpp_operator.report.engines import pod_is_ready
from kvpp_operator.report.why import Rank, why_not

STALE_KEYS = 32
"""Half a kilobyte each."""

SILENT = "Starting: no router pod has said anything yet"


@dataclass(frozen=True)
class PodReport:
    """What one router pod says."""

    reason: str
    """A `router.standing.Reason`."""
    message: str
    revision: str
    """Whose engines it serves."""
    members: int
    handover: str
    """`seen`, `not seen` or `unknown`."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


@dataclass(frozen=True)
class RouterState:
    address: str
    wanted: int
    ready: int
    is_current: bool = True
    """Whether all pods are of the newest template."""
    reports: tuple[PodReport, ...] = ()
    obstacle: str = ""
    """Why the first pod that is not ready is not."""

    @property
    def members(self) -> int | None:
        """Engines behind every router pod; None while nobody has said."""
        return min((report.members for report in self.reports), default=None)

    def said(self, reason: str) -> PodReport | None:
        return next((report for report in self.reports if report.reason == reason), None)

    def to_json(self) -> dict[str, Any]:
        members = {} if self.members is None else {"members": self.members}
        revisions = sorted({report.revision for report in self.reports if report.revision})
        serving = {"revision": ", ".join(revisions)} if revisions else {}
        return {"address": self.address, "wanted": self.wanted, "ready": self.ready, **members, **serving}


def router_workload(manifests: Iterable[Manifest]) -> Manifest | None:
    """The router's Deployment among a deployment's objects; None where nobody or somebody else routes."""
    return next((one for one in manifests if one["kind"] == "Deployment" and is_of_router(one)), None)


def is_of_router(thing: Manifest) -> bool:
    return bool(thing["metadata"].get("labels", {}).get(names.COMPONENT) == names.ROUTER)


def router_state(workload: Manifest, owned: Mapping[Key, Manifest], pods: Iterable[Manifest]) -> RouterState:
    """`workload`: as wished, or as it runs where nothing is wished."""
    metadata, wanted = workload["metadata"], workload["spec"]["replicas"]
    mine = [pod for pod in pods if is_of_router(pod)]
    staying = [pod for pod in mine if not pod["metadata"].get("deletionTimestamp")]
    live = owned.get(key_of(workload))
    config = owned.get(Key("v1", "ConfigMap", metadata["namespace"], metadata["name"])) or {}
    told = {name: report for name, text in (config.get("data") or {}).items() if (report := parse(text)) is not None}
    waiting = [pod for pod in staying if not pod_is_ready(pod)]
    reports = (told.get(pod["metadata"]["name"]) for pod in staying)
    return RouterState(
        address=address(owned.get(Key("v1", "Service", metadata["namespace"], metadata["name"])), metadata),
        wanted=wanted,
        ready=len(staying) - len(waiting),
        is_current=live is not None and is_current(live, wanted),
        reports=tuple(report for report in reports if report is not None),
        obstacle=obstacle(live, waiting, told) if waiting or len(staying) < wanted else "",
    )


def stale(config: Manifest, pods: Iterable[Manifest]) -> list[str]:
    """Keys of a router's ConfigMap whose pods are gone, if there are more than a rollout leaves; else none."""
    there = {pod["metadata"]["name"] for pod in pods}
    left = sorted(name for name in config.get("data") or {} if name not in there)
    return left if len(left) > STALE_KEYS else []


def parse(text: str) -> PodReport | None:
    """None for what no agent has written."""
    try:
        found = json.loads(text)
        members = sum(len(addresses) for addresses in found["members"].values())
        words = {name: str(found[name]) for name in ("reason", "message", "revision", "handover")}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return PodReport(members=members, **words)


def is_current(live: Manifest, wanted: int) -> bool:
    status = live.get("status", {})
    seen = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    return bool(seen and status.get("updatedReplicas", 0) >= wanted)


def obstacle(live: Manifest | None, waiting: list[Manifest], told: Mapping[str, PodReport]) -> str:
    """The agent's own words where it got as far as that, else the scheduler's or the kubelet's."""
    for pod in waiting:
        if (report := told.get(pod["metadata"]["name"])) is not None:
            return str(report)
    word = why_not(live, waiting, 1, {})
    return SILENT if word.rank is Rank.LOADING else word.text.replace("the engine's workload", "the router")


def address(service: Manifest | None, metadata: Mapping[str, Any]) -> str:
    """Where requests go: the load balancer's address where there is one, else the Service's name."""
    spec, status = (service or {}).get("spec", {}), (service or {}).get("status", {})
    port = next((port["port"] for port in spec.get("ports", [])), 8000)
    for ingress in status.get("loadBalancer", {}).get("ingress", []):
        if host := ingress.get("hostname") or ingress.get("ip"):
            return f"{host}:{port}"
    return f"{metadata['name']}.{metadata['namespace']}.svc:{port}"
