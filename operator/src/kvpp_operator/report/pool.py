"""A pool's service that we run → whether it answers, and if not, why.

Engines wait for it before they start; later they serve without it, so its end shows in no engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvpp_operator import names
from kvpp_operator.manifest import Key, Manifest, key_of
from kvpp_operator.report.engines import pod_is_ready
from kvpp_operator.report.why import Rank, why_not

STARTING = "Starting: its pod runs and does not answer yet"


@dataclass(frozen=True)
class PoolState:
    name: str
    wanted: int
    """Pods; of several one is elected, and the others are ready too."""
    ready: int
    obstacle: str = ""
    """Why the first pod that is not ready is not."""

    def __str__(self) -> str:
        return f"{self.ready} of {self.wanted} pods of {self.name} are ready. {self.obstacle}".rstrip()


def pool_states(
    manifests: Iterable[Manifest], owned: Mapping[Key, Manifest], pods: Iterable[Manifest]
) -> tuple[PoolState, ...]:
    """Every pool whose service is ours, older ones included that engines are still in.

    `manifests`: a deployment's objects as wished, or as they run where nothing is wished.
    """
    mine = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    workloads = (one for one in manifests if one["kind"] in ("Deployment", "StatefulSet") and names.POOL in labels(one))
    return tuple(state_of(one, owned.get(key_of(one)), mine) for one in workloads)


def state_of(workload: Manifest, live: Manifest | None, pods: Iterable[Manifest]) -> PoolState:
    mine = [pod for pod in pods if labels(pod).get(names.POOL) == labels(workload)[names.POOL]]
    waiting = [pod for pod in mine if not pod_is_ready(pod)]
    wanted, obstacle = workload["spec"]["replicas"], ""
    if waiting or len(mine) < wanted:
        word = why_not(live, waiting, 1, {})
        obstacle = STARTING if word.rank is Rank.LOADING else word.text.replace("the engine's workload", "its workload")
    return PoolState(workload["metadata"]["name"], wanted, len(mine) - len(waiting), obstacle)


def labels(thing: Manifest) -> Mapping[str, str]:
    found: Mapping[str, str] = thing["metadata"].get("labels") or {}
    return found
