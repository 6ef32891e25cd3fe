"""Workloads and pods of pools → whether their services answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvpp_operator import names
from kvpp_operator.manifest import Manifest, key_of
from kvpp_operator.report.pool import PoolState, pool_states
from kvpp_operator.report.status import Report, status

NAME = "glm-pool-1a2b3c"
LABELS = {names.DEPLOYMENT: "glm", names.POOL: "1a2b3c"}
MISSING = {"name": "meta-service", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


def service(replicas: int = 1, *, name: str = NAME, labels: dict[str, str] = LABELS) -> Manifest:
    kind = "Deployment" if replicas == 1 else "StatefulSet"
    metadata = {"namespace": "ns", "name": name, "labels": labels}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"replicas": replicas}}


def pod(
    name: str, *, ready: bool = True, leaving: bool = False, labels: dict[str, str] = LABELS, **state: Any
) -> Manifest:
    metadata = {"namespace": "ns", "name": name, "labels": labels}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Running", "conditions": conditions, **state}}


def one(workload: Manifest, *pods: Manifest) -> PoolState:
    [found] = pool_states([workload], {key_of(workload): workload}, pods)
    return found


def test_it_answers() -> None:
    assert one(service(), pod("a")) == PoolState(NAME, 1, 1)
    assert one(service(2), pod("a"), pod("b")) == PoolState(NAME, 2, 2)


@pytest.mark.parametrize(
    ("what", "pods", "ready", "obstacle"),
    [
        ("its image is missing", [pod("a", ready=False, containerStatuses=[MISSING])], 0, "ImagePullBackOff: no such image"),
        ("it does not answer", [pod("a", ready=False)], 0, "Starting: its pod runs and does not answer yet"),
        ("its pod leaves", [pod("a", leaving=True)], 0, "Starting: waiting for the pod"),
        ("its pod belongs to another pool", [pod("a", labels={**LABELS, names.POOL: "000000"})], 0, "Starting: waiting for the pod"),
    ],
)  # fmt: skip
def test_why_it_does_not(what: str, pods: list[Manifest], ready: int, obstacle: str) -> None:
    found = one(service(), *pods)
    assert found.ready == ready and found.obstacle.startswith(obstacle), what


def test_its_workload_does_not_exist_yet() -> None:
    [found] = pool_states([service()], {}, [])
    assert str(found) == f"0 of 1 pods of {NAME} are ready. NotCreated: its workload does not exist yet"


def test_engines_and_routers_are_no_pool() -> None:
    engine = service(name="glm-p0", labels={names.DEPLOYMENT: "glm", names.ROLE: "prefill"})
    account = {**service(), "kind": "ServiceAccount"}
    assert pool_states([engine, account], {}, []) == ()


UP, DOWN, OLDER = PoolState(NAME, 1, 1), PoolState(NAME, 1, 0, "Starting: x"), PoolState("glm-pool-old", 2, 1, "why")


@pytest.mark.parametrize(
    ("pools", "expected", "message"),
    [
        ((), None, ""),
        ((UP,), "True/PoolReady", "The pool's service answers"),
        ((UP, OLDER), "True/PoolDegraded", "1 of 2 pods of glm-pool-old are ready. why"),
        ((DOWN, OLDER), "False/PoolDown", f"0 of 1 pods of {NAME} are ready. Starting: x"),
        ((replace(UP, wanted=0, ready=0),), "True/PoolReady", ""),
    ],
)
def test_the_condition(pools: tuple[PoolState, ...], expected: str | None, message: str) -> None:
    found = status(Report(generation=1, findings=(), wanted={"unified": 1}, pools=pools), {}, "2026-01-01T00:00:00Z")
    said = {one["type"]: (f"{one['status']}/{one['reason']}", one["message"]) for one in found["conditions"]}
    if expected is None:
        assert "PoolReady" not in said
    else:
        assert said["PoolReady"][0] == expected and said["PoolReady"][1].startswith(message)
