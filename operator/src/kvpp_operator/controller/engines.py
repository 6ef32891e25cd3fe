"""What engines need beside being applied: an explanation from events, and a hand where a lost node holds them back."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import KIND_OF, key_of
from kvpp_operator.report.engines import TELLING
from kvpp_operator.report.why import WAITING_FOR_POOL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.manifest import Manifest
    from kvpp_operator.report.engines import EngineState, WantedEngine

logger = logging.getLogger(__name__)

EVENTS = KIND_OF["events.k8s.io/v1", "Event"]

LOST_MARGIN_SECONDS = 30.0
"""Beyond a pod's grace period: a kubelet that is alive has confirmed the end by then."""

GROUP_LABEL = "leaderworkerset.sigs.k8s.io/name"


async def explain(
    cluster: Cluster, states: Iterable[EngineState], wanted: Sequence[WantedEngine], pods: Sequence[Manifest]
) -> dict[str, str]:
    """What events say about these engines' pods and about those who make them, by the name that `report` asks for.

    A StatefulSet that is not allowed to make pods says so in an event and nowhere else. For engines that wait for their pool,
    it is the pool's pods that are asked about.
    """
    told: dict[str, str] = {}
    looked: set[str] = set()
    pool = {
        pod["metadata"]["name"]: pod["metadata"]["name"]
        for pod in pods
        if names.POOL in pod["metadata"].get("labels", {})
    }
    for state in states:
        engine = next(one for one in wanted if one.is_of(state))
        workload = engine.workload["metadata"]["name"]
        namespace = engine.workload["metadata"]["namespace"]
        # A LeaderWorkerSet's StatefulSets are called as itself and, for ranks above 0, as the head's pod.
        about = {workload: workload, f"{workload}-0": workload} | {name: name for name in engine.pods(pods)}
        for name, asked in (pool if state.reason.startswith(WAITING_FOR_POOL) else about).items():
            if asked not in told and name not in looked and (text := await newest(cluster, namespace, name)):
                told[asked] = text
            looked.add(name)
    return told


async def newest(cluster: Cluster, namespace: str, name: str) -> str:
    """The last telling event about an object; "" when there is none, or when we may not read events."""
    fields = f"regarding.name={name},type=Warning"
    try:
        events = [event async for event in cluster.list(EVENTS, namespace=namespace, fields=fields)]
    except ClusterError as error:
        logger.warning("cannot read events", extra={"object": f"{namespace}/{name}", "problem": error.message})
        return ""
    found = [event for event in events if event.get("reason") in TELLING]
    last = max(found, key=seen_at, default=None)
    return f"{last['reason']}: {last.get('note', '')}" if last else ""


def seen_at(event: Manifest) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return str(next((time for time in times if time), event["metadata"]["creationTimestamp"]))


async def release(cluster: Cluster, pods: Iterable[Manifest], now: str) -> float | None:
    """Take away pods of groups that a lost node can't end, so that the group is made anew elsewhere.

    A StatefulSet, and so LeaderWorkerSet, waits for ever for a pod whose kubelet is silent; a Deployment does not. Which
    node is lost Kubernetes has said already: the pod was evicted by its taint. Returns seconds until the next pod is due.
    """
    waits: list[float] = []
    for pod in pods:
        if not is_evicted(pod) or GROUP_LABEL not in pod["metadata"].get("labels", {}):
            continue
        due = seconds_between(now, pod["metadata"]["deletionTimestamp"]) + LOST_MARGIN_SECONDS
        if due > 0:
            waits.append(due)
            continue
        about = {"pod": str(key_of(pod)), "node": pod["spec"].get("nodeName")}
        logger.warning("taking away a pod of a lost node", extra=about)
        try:
            await cluster.delete(key_of(pod), uid=pod["metadata"]["uid"], grace_seconds=0)
        except ClusterError as error:  # a cluster may not grant it; the rest of the look is none the worse
            logger.warning("cannot take it away", extra={**about, "problem": error.message})
            waits.append(LOST_MARGIN_SECONDS)
    return min(waits, default=None)


def is_evicted(pod: Manifest) -> bool:
    """Deleted because its node is tainted NoExecute: unreachable, or not ready."""
    conditions = pod.get("status", {}).get("conditions", [])
    return "deletionTimestamp" in pod["metadata"] and any(
        condition.get("type") == "DisruptionTarget"
        and condition.get("status") == "True"
        and condition.get("reason") == "DeletionByTaintManager"
        for condition in conditions
    )


def seconds_between(first: str, second: str) -> float:
    """RFC 3339, as Kubernetes writes it."""
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()
