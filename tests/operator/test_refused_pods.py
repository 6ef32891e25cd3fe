"""Pods that the API server refuses: the reason stands in status, whoever makes the pods, and goes away with its cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import specs
from operator_process import Cluster, Operator, eventually

from kvpp_devcluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

SECONDS = 120.0


@dataclass(frozen=True)
class Refusal:
    """Something in a namespace that keeps pods out."""

    what: str
    words: tuple[str, ...]
    code: str
    bring: Callable[[Cluster], None]
    take_away: Callable[[Cluster], None]
    template: dict[str, Any]

    def __str__(self) -> str:
        return self.what


def creating(
    kind: str, spec: dict[str, Any], api: str = "v1"
) -> tuple[Callable[[Cluster], None], Callable[[Cluster], None]]:
    body = {"apiVersion": api, "kind": kind, "metadata": {"name": "limit"}, "spec": spec}
    return (
        lambda user: void(user.kubectl("apply", "-f", "-", input=json.dumps(body))),
        lambda user: void(user.kubectl("delete", kind.lower(), "limit")),
    )


def labelled(level: str) -> Callable[[Cluster], None]:
    key = "pod-security.kubernetes.io/enforce"
    return lambda user: void(user.kubectl("label", "namespace", user.namespace, f"{key}={level}", "--overwrite"))


def nothing(_: Cluster) -> None:
    """What is missing is missing."""


def priority_class(user: Cluster) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": user.namespace},
        "value": 7,
    }
    user.kubectl("apply", "-f", "-", input=json.dumps(body))


def void(_: object) -> None:
    """kubectl's output says nothing here."""


REFUSALS = (
    Refusal("a quota", ("FailedCreate", "exceeded quota: limit"), "quota",
            *creating("ResourceQuota", {"hard": {"requests.huawei.com/npu": "4"}}), {}),
    Refusal("a quota that wants limits", ("FailedCreate", "failed quota: limit"), "quota",
            *creating("ResourceQuota", {"hard": {"limits.memory": "1Ti"}}), {}),
    Refusal("a LimitRange", ("FailedCreate", "minimum cpu usage per Container"), "limit-range",
            *creating("LimitRange", {"limits": [{"type": "Container", "min": {"cpu": "100"}}]}), {}),
    Refusal("Pod Security", ("FailedCreate", "violates PodSecurity", "hostPath"), "pod-security",
            labelled("baseline"), labelled("privileged"), {}),
    Refusal("a PriorityClass that is missing", ("FailedCreate", "no PriorityClass with name"), "priority-class",
            nothing, priority_class, {"spec": {"priorityClassName": "NAMESPACE"}}),
)  # fmt: skip


def reasons(user: Cluster) -> dict[str, str]:
    items = user.get("kvpp")["items"]
    return {
        item["metadata"]["name"]: str((item.get("status", {}).get("engines") or [{}])[0].get("reason"))
        for item in items
    }


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_refusal_is_told_and_heals(
    user: Cluster, operator: Operator, local_cluster: LocalCluster, refusal: Refusal
) -> None:
    local_cluster.start_lws()
    refusal.bring(user)
    template = json.loads(json.dumps(refusal.template).replace("NAMESPACE", user.namespace))
    for name, pipeline in (("one", 1), ("two", 2)):
        parallelism = {"tensor": 8, "pipeline": pipeline, "expert": True}
        user.apply(
            specs.deployment(specs.UNIFIED, name, unified__parallelism=parallelism, unified__podTemplate=template)
        )
    wanted = (*refusal.words, f"engine-codes.md#{refusal.code}]")
    eventually(
        lambda: len(told := reasons(user)) == 2 and all(word in text for text in told.values() for word in wanted),
        seconds=SECONDS,
        what=f"{wanted} in {reasons(user)}",
    )
    assert user.condition("one", "Ready")["reason"] == "EnginesNotReady"
    refusal.take_away(user)
    for name in ("one", "two"):
        # The controllers that make pods come back with growing delays.
        user.wait(name, "Ready", seconds=SECONDS)


def test_a_pod_that_stays_in_creation_is_explained_by_its_events(user: Cluster, operator: Operator) -> None:
    """Nothing but an event says that a file of the host is missing; a simulated kubelet writes none, so we do."""
    waiting = {"devcluster.kvpp.io/waiting": "ContainerCreating"}
    user.apply(specs.deployment(specs.UNIFIED, unified__podTemplate={"metadata": {"annotations": waiting}}))
    [pod] = eventually(lambda: user.get("pods")["items"], seconds=SECONDS)
    about = {"kind": "Pod", "namespace": user.namespace, "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "mount"}, "involvedObject": {"apiVersion": "v1", **about},
        "type": "Warning", "reason": "FailedMount", "source": {"component": "kubelet"}, "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "message": 'MountVolume.SetUp failed for volume "hccn-conf" : hostPath type check failed: /etc/hccn.conf is not a file',
    }  # fmt: skip
    user.kubectl("create", "-f", "-", input=json.dumps(event))
    eventually(
        lambda: "FailedMount" in reasons(user)["demo"] and "#host-file-missing]" in reasons(user)["demo"],
        seconds=SECONDS,
    )
