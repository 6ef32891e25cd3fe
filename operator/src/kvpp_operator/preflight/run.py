"""One run: Jobs on all nodes at once, their answers, and nothing left afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpp_operator.cluster.client import Conflict
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import KIND_OF, PODS, Manifest, key_of
from kvpp_operator.preflight.job import LABEL, Target, job, script
from kvpp_operator.preflight.probe import Result
from kvpp_operator.report.why import Rank, Word, why_not

if TYPE_CHECKING:
    from kvpp_operator.cluster.client import Cluster

PROBE = Path(__file__).with_name("probe.py")
NODES = KIND_OF["v1", "Node"]
EVENTS = KIND_OF["events.k8s.io/v1", "Event"]
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
    """Node → which of the resources it offers; of all nodes, or of those named."""
    wanted = frozenset(resources)
    found: dict[str, frozenset[str]] = {}
    async for node in cluster.list(NODES):
        name, offered = node["metadata"]["name"], node.get("status", {}).get("allocatable", {})
        has = frozenset(resource for resource in wanted if offered.get(resource, "0") != "0")
        if (not named or name in named) and (has or name in named):
            found[name] = has
    return found


async def preflight(
    cluster: Cluster, targets: Sequence[Target], named: Sequence[str], run: str, *, npus: int, seconds: int,
    started: Callable[[int], None],
) -> list[Answer]:  # fmt: skip
    """Try every target on every node that has its resource. Raises `ClusterError` when a Job can't be made."""
    nodes = await nodes_with(cluster, {target.resource for target in targets}, named)
    asked = {
        key_of(made).name: (target, node, made)
        for target in targets
        for node, has in sorted(nodes.items())
        if target.resource in has
        for made in (job(target, node, run, npus=npus, seconds=seconds),)
    }
    without = [
        Answer(target, node, (Result("devices", "error", f"the node offers no {target.resource}", "look at its device plugin"),))
        for target in targets
        for node, has in sorted(nodes.items())
        if target.resource not in has and node in named
    ]  # fmt: skip
    objects = [*(script(namespace, run, PROBE.read_text("utf-8")) for namespace in sorted({t.namespace for t in targets})),
               *(made for _, _, made in asked.values())]  # fmt: skip
    made: list[Manifest] = []
    try:
        for one in objects:
            created = await cluster.create(one)
            if isinstance(created, Conflict):
                raise ClusterError(409, "AlreadyExists", created.message)
            made.append(created)
        started(len(asked))
        results = await answers(cluster, [one for _, _, one in asked.values()], run, seconds)
        return [*without, *(Answer(target, node, results[name]) for name, (target, node, _) in asked.items())]
    finally:
        # Also after Ctrl-C, and one that can't be deleted keeps no other: what is left goes by its own time limit.
        deletions = (cluster.delete(key_of(one), uid=one["metadata"]["uid"]) for one in reversed(made))
        await asyncio.shield(asyncio.gather(*deletions, return_exceptions=True))


async def answers(cluster: Cluster, jobs: Sequence[Manifest], run: str, seconds: int) -> dict[str, tuple[Result, ...]]:
    """By the Job's name, once each has ended, is in trouble for a while, or has had its time."""
    found: dict[str, tuple[Result, ...]] = {}
    since: dict[str, float] = {}
    deadline = time.monotonic() + seconds
    while len(found) < len(jobs):
        pods: dict[str, list[Manifest]] = {}
        for namespace in {one["metadata"]["namespace"] for one in jobs}:
            async for pod in cluster.list(PODS, namespace=namespace, labels=f"{LABEL}={run}"):
                pods.setdefault(pod["metadata"]["labels"].get("batch.kubernetes.io/job-name", ""), []).append(pod)
        for one in jobs:
            name = one["metadata"]["name"]
            if name in found:
                continue
            now, mine = time.monotonic(), pods.get(name, [])
            if (said := ended(mine)) is not None:
                found[name] = said
                continue
            word = await in_words(cluster, one, mine)
            since[name] = since.get(name, now) if word.rank in TROUBLES else now
            if now - since[name] > PATIENCE_SECONDS or now > deadline:
                found[name] = (
                    Result("pod", "error", word.text, "see the events of the node's pod; nothing was looked at"),
                )
        await asyncio.sleep(LOOK_SECONDS)
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
    told = {}
    for name in (pod["metadata"]["name"] for pod in pods):
        namespace = one["metadata"]["namespace"]
        fields = f"regarding.name={name},type=Warning"
        events = [event async for event in cluster.list(EVENTS, namespace=namespace, fields=fields)]
        telling = [
            event
            for event in events
            if event.get("reason") in ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
        ]
        if telling:
            told[name] = f"{telling[-1]['reason']}: {telling[-1].get('note', '')}"
    return why_not(one, pods, 1, told)
