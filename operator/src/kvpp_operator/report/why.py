"""Live workloads and pods → what holds an engine up, in the words of whoever does.

The most telling word of all pods is taken: what is refused before what waits for a node, before what failed, before what is
under way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from kvpp_operator import names
from kvpp_operator.manifest import Manifest
from kvpp_operator.report.codes import recognise

TEXT_LIMIT = 320
"""Of somebody's own words; a known code's hint comes on top."""

UNDER_WAY = (None, "ContainerCreating", "PodInitializing")
ASKED_TO_END = (137, 143)
"""SIGKILL and SIGTERM: how containers of a deleted pod end; no failure of their own."""

MEMORY = "; last failure: "


WAITING_FOR_POOL = "WaitingForPool:"


class Rank(IntEnum):
    """What is said first when pods say different things."""

    REFUSED = 0
    UNSCHEDULABLE = 1
    FAILED = 2
    """Remembered while the engine starts again."""
    TOLD = 3
    EVICTED = 4
    STOPPING = 5
    WAITING = 6
    CREATING = 7
    LOADING = 8
    MISSING = 9


class Word(NamedTuple):
    rank: Rank
    text: str


def why_not(
    workload: Manifest | None,
    pods: Iterable[Manifest],
    size: int,
    told: Mapping[str, str],
    pool: Iterable[Manifest] = (),
) -> Word:
    """The first thing that holds the engine up. `told`: events, by the name of the object that they are about. `pool`: pods of
    the pool's service.
    """
    if workload is None:
        return Word(Rank.MISSING, "NotCreated: the engine's workload does not exist yet")
    mine = list(pods)
    words = [*workload_words(workload), *(word for pod in mine for word in pod_words(pod, told))]
    if (event := told.get(workload["metadata"]["name"])) is not None:
        words.append(Word(Rank.REFUSED, told_in_full(event)))
    if len(mine) < size:
        words.append(
            Word(
                Rank.MISSING, f"Starting: {len(mine)} of {size} pods exist" if mine else "Starting: waiting for the pod"
            )
        )
    first = min(
        words, key=lambda word: word.rank, default=Word(Rank.LOADING, "Loading: the engine runs but is not ready yet")
    )
    return waiting_for(pool, told) if first.rank == Rank.WAITING else first


def waiting_for(pool: Iterable[Manifest], told: Mapping[str, str]) -> Word:
    """What the pool's own pods say, where one of them says why."""
    words = [(word, pod["metadata"]["name"]) for pod in pool for word in pod_words(pod, told)]
    telling = [(word.rank, f"; {name}: {word.text}") for word, name in words if word.rank < Rank.WAITING]
    why = min(telling, default=(Rank.WAITING, ""))[1]
    return Word(Rank.WAITING, f"{WAITING_FOR_POOL} its service does not answer yet{why}")


def with_memory(word: Word, before: str) -> str:
    """`before`: the engine's last reason. A failure stays known until the engine is ready."""
    if word.rank <= Rank.FAILED:
        return word.text
    _, memory, failure = before.partition(MEMORY)
    if not memory:
        failure = before if before.startswith(FAILED_STARTS) else ""
    return f"{word.text}{MEMORY}{failure}" if failure else word.text


def workload_words(workload: Manifest) -> Iterator[Word]:
    """A Deployment says so itself when its pods are refused; a LeaderWorkerSet does not (its StatefulSet has only events)."""
    for condition in workload.get("status", {}).get("conditions", []):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            yield Word(
                Rank.REFUSED, told_in_full(f"{condition.get('reason', 'FailedCreate')}: {condition.get('message', '')}")
            )


def pod_words(pod: Manifest, told: Mapping[str, str]) -> Iterator[Word]:
    status = pod.get("status", {})
    is_leaving = bool(pod["metadata"].get("deletionTimestamp"))
    if is_leaving:
        yield stopping(pod)
    for condition in status.get("conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield Word(
                Rank.UNSCHEDULABLE,
                told_in_full(f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}"),
            )
    for container in status.get("initContainerStatuses", []):
        if container.get("name") == names.POOL_WAIT and "running" in container.get("state", {}) and not is_leaving:
            yield Word(Rank.WAITING, f"{WAITING_FOR_POOL} its service does not answer yet")
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        yield from container_words(container, is_leaving=is_leaving)
    if (event := told.get(pod["metadata"]["name"])) is not None:
        yield Word(Rank.TOLD, told_in_full(event))
    if status.get("phase") == "Running" and not is_leaving:
        yield Word(Rank.LOADING, "Loading: the engine runs but is not ready yet")


def stopping(pod: Manifest) -> Word:
    for condition in pod.get("status", {}).get("conditions", []):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return Word(
                Rank.EVICTED, told_in_full(f"Evicted: {condition.get('message') or condition.get('reason', '')}")
            )
    return Word(Rank.STOPPING, "Terminating: the pod is being stopped")


def container_words(container: Mapping[str, Any], *, is_leaving: bool) -> Iterator[Word]:
    state = container.get("state", {})
    waiting = state.get("waiting")
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
    log = ended.get("message", "")
    if waiting and waiting.get("reason") not in UNDER_WAY:
        detail = cause(log) or (ended_words(ended) if has_failed(ended) else "") or waiting.get("message", "")
        yield Word(Rank.FAILED, told_in_full(f"{waiting['reason']}: {detail}", log))
    elif has_failed(ended) and not (is_leaving and ended.get("exitCode") in ASKED_TO_END):
        yield Word(Rank.FAILED, told_in_full(f"{ended.get('reason', 'Error')}: {ended_words(ended)}", log))
    elif waiting:
        yield Word(Rank.CREATING, "Creating: the container is being created")


def has_failed(ended: Mapping[str, Any]) -> bool:
    return bool(ended.get("exitCode")) or ended.get("reason") == "OOMKilled"


def ended_words(ended: Mapping[str, Any]) -> str:
    text = cause(ended.get("message", ""))
    return f"exit code {ended.get('exitCode')}. {text}" if text else f"exit code {ended.get('exitCode')}"


FAILED_STARTS = ("Error:", "OOMKilled:", "CrashLoopBackOff:", "RunContainerError:", "StartError:")
"""How reasons of rank FAILED begin that a container's end brings about; the others come back by themselves."""

ERROR_LINE = re.compile(r"\b[A-Za-z]*(Error|Exception|error|ERROR)\b")


def cause(message: str) -> str:
    """Of a log's last lines the one that says most: the first that a known code is found in, else the last that looks like an
    error, else the last.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    known = next((line for line in lines if recognise(line) is not None), None)
    errors = [line for line in lines if ERROR_LINE.search(line)]
    return known or (errors or lines or [""])[-1]


def told_in_full(text: str, more: str = "") -> str:
    """One bounded line, and for a known failure its phase and what to do. `more` is looked through too, not shown."""
    line = shortened(text)
    code = recognise(text) or (recognise(more) if more else None)
    return f"{line} [{code.phase}: {code.hint}; engine-codes.md#{code.name}]" if code else line


def shortened(text: str) -> str:
    """Status has a size limit, and people read the start."""
    line = " ".join(text.split()).rstrip(":. ")
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"
