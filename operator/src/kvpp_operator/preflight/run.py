"""One run: Jobs on all nodes at once, their answers, and nothing left afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvpp_operator.cluster.client import Conflict
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import KIND_OF, PODS, Manifest, key_of
from kvpp_operator.preflight.job import LABEL, Target, job, script
from kvpp_operator.preflight.probe import Result
from kvpp_operator.report.engines import TELLING
from kvpp_operator.report.why import Rank, Word, why_not

if TYPE_CHECKING:
    from kvpp_operator.cluster.client import Cluster

PROBE = Path(__file__).with_name("probe.py")
NODES = KIND_OF["v1", "Node"]
EVENTS = KIND_OF["events.k8s.io/v1", "Event"]
OF_JOB = "batch.kubernetes.io/job-name"
LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 45.0
"""For a pod that can't be scheduled, or whose volumes or image can't be had: such trouble may pass, but rarely does."""

TROUBLES = (Rank.REFUSED, Rank.UNSCHEDULABLE, Rank.FAILED, Rank.TOLD)


@dataclass(frozen=True)
class Answer:
    """What became of one Job."""

    target: Target
    node: str
    results: tuple[Result, ...]

    @property
    def has_errors(self) -> bool:
        return any(result.state == "error" for result in self.results)


async def nodes_with(cluster: Cluster, resources: Iterable[str], named: Sequence[str]) -> dict[str, frozenset[str]]:
    """Node → which of the resources it offers; of all nodes that offer any, or of those named. `LookupError` names an unknown one."""
    wanted = frozenset(resources)
    found: dict[str, frozenset[str]] = {}
    async for node in cluster.list(NODES):
        offered = node.get("status", {}).get("allocatable", {})
        found[node["metadata"]["name"]] = frozenset(one for one in wanted if offered.get(one, "0") != "0")
    if unknown := sorted(set(named) - found.keys()):
        raise LookupError(f"there is no node {', '.join(unknown)}")
    return {name: found[name] for name in sorted(found) if (name in named if named else found[name])}


async def preflight(
    cluster: Cluster, targets: Sequence[Target], named: Sequence[str], run: str, *, npus: int, seconds: int,
    started: Callable[[int], None],
) -> list[Answer]:  # fmt: skip
    """Try every target on every node. Raises `LookupError` for an unknown node, `ClusterError` when a Job can't be made."""
    nodes = await nodes_with(cluster, {target.resource for target in targets}, named)
    tries = [
        Try(target, node, job(target, node, run, npus=npus, seconds=seconds)) for target in targets for node in nodes
    ]
    possible = [one for one in tries if one.target.resource in nodes[one.node]]
    namespaces = sorted({one.target.namespace for one in possible})
    text = PROBE.read_text("utf-8")
    async with made(cluster, [*(script(name, run, text) for name in namespaces), *(one.job for one in possible)]):
        started(len(possible))
        told = await answers(cluster, [one.job for one in possible], run, seconds)
    return [Answer(one.target, one.node, told.get(one.name) or nothing_offered(one.target)) for one in tries]


class Try(NamedTuple):
    """A target on a node."""

    target: Target
    node: str
    job: Manifest

    @property
    def name(self) -> str:
        return key_of(self.job).name


def nothing_offered(target: Target) -> tuple[Result, ...]:
    words = f"the node offers no {target.resource}"
    return (Result("devices", "error", words, "look at its device plugin, or set accelerator.resourceName"),)


@asynccontextmanager
async def made(cluster: Cluster, manifests: Iterable[Manifest]) -> AsyncIterator[None]:
    """Objects that are there inside, and gone afterwards, also after Ctrl-C. What can't be deleted goes by its own time limit."""
    there: list[Manifest] = []
    try:
        for manifest in manifests:
            created = await cluster.create(manifest)
            if isinstance(created, Conflict):
                raise ClusterError(HTTPStatus.CONFLICT, "AlreadyExists", created.message)
            there.append(created)
        yield
    finally:
        deletions = (cluster.delete(key_of(one), uid=one["metadata"]["uid"]) for one in reversed(there))
        await asyncio.shield(asyncio.gather(*deletions, return_exceptions=True))


async def answers(cluster: Cluster, jobs: Sequence[Manifest], run: str, seconds: int) -> dict[str, tuple[Result, ...]]:
    """By the Job's name, once each has ended, is in trouble for a while, or has had its time."""
    found: dict[str, tuple[Result, ...]] = {}
    well_at: dict[str, float] = {}
    deadline = time.monotonic() + seconds
    while waiting := [one for one in jobs if key_of(one).name not in found]:
        pods = await pods_by_job(cluster, {key_of(one).namespace for one in waiting}, run)
        for one in waiting:
            name, now = key_of(one).name, time.monotonic()
            mine = pods.get(name, [])
            if (said := ended(mine)) is not None:
                found[name] = said
                continue
            word = await in_words(cluster, one, mine)
            if word.rank not in TROUBLES or name not in well_at:
                well_at[name] = now
            if now - well_at[name] > PATIENCE_SECONDS or now > deadline:
                found[name] = (
                    Result("pod", "error", word.text, "nothing was looked at: the engine's pod would not start either"),
                )
        await asyncio.sleep(LOOK_SECONDS)
    return found


async def pods_by_job(cluster: Cluster, namespaces: Iterable[str], run: str) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for namespace in namespaces:
        async for pod in cluster.list(PODS, namespace=namespace, labels=f"{LABEL}={run}"):
            found.setdefault(pod["metadata"]["labels"].get(OF_JOB, ""), []).append(pod)
    return found


def ended(pods: Iterable[Manifest]) -> tuple[Result, ...] | None:
    """What the probe has left behind; None while it runs."""
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            if (over := container.get("state", {}).get("terminated")) is not None:
                return parse(over)
    return None


def parse(over: dict[str, Any]) -> tuple[Result, ...]:
    message = over.get("message", "")
    try:
        return tuple(Result(*(str(one[field]) for field in Result._fields)) for one in json.loads(message))
    except (ValueError, TypeError, KeyError):
        words = f"exit code {over.get('exitCode')}. {message.strip()}".strip()
        return (Result("pod", "error", words[:400], "the image must start its arguments, and have python3"),)


async def in_words(cluster: Cluster, one: Manifest, pods: list[Manifest]) -> Word:
    """What holds a Job's pod up; why a volume can't be mounted only events say."""
    told = {}
    for name in (pod["metadata"]["name"] for pod in pods):
        fields = f"regarding.name={name},type=Warning"
        events = [event async for event in cluster.list(EVENTS, namespace=key_of(one).namespace, fields=fields)]
        if telling := [event for event in events if event.get("reason") in TELLING]:
            told[name] = f"{telling[-1]['reason']}: {telling[-1].get('note', '')}"
    return why_not(one, pods, 1, told)
