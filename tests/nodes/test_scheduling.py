"""Gangs, queues, priorities and disruption budgets: the shape of what schedulers read."""

from __future__ import annotations

from typing import Any

import pytest
import specs

from kvpp_operator.manifest import Manifest
from kvpp_operator.pipeline import wished

GANG: dict[str, Any] = {"scheduler": "Volcano", "queue": "serving"}
TWO_NODES = {"tensor": 8, "pipeline": 2, "expert": True}


def made(**changes: Any) -> list[Manifest]:
    return wished(specs.planned(specs.deployment(specs.DISAGGREGATED, **changes)))


def of_kind(manifests: list[Manifest], *kinds: str) -> dict[str, Manifest]:
    """By name; of the router's Deployment nothing is asked here."""
    return {
        m["metadata"]["name"]: m
        for m in manifests
        if m["kind"] in kinds and "serving.kvpp.io/engine" in m["metadata"]["labels"]
    }


def templates(workload: Manifest) -> list[Manifest]:
    group = workload["spec"].get("leaderWorkerTemplate")
    return [group["leaderTemplate"], group["workerTemplate"]] if group else [workload["spec"]["template"]]


def test_each_engine_has_a_group_of_its_own() -> None:
    manifests = made(gang=GANG, prefill__replicas=2, prefill__parallelism=TWO_NODES)
    groups, workloads = of_kind(manifests, "PodGroup"), of_kind(manifests, "Deployment", "LeaderWorkerSet")
    assert len(groups) == 3
    assert groups.keys() == workloads.keys()
    for name, group in groups.items():
        nodes = 2 if workloads[name]["kind"] == "LeaderWorkerSet" else 1
        assert group["spec"] == {
            "minMember": nodes,
            "minResources": {"huawei.com/npu": str(8 * nodes)},
            "queue": "serving",
        }
        for template in templates(workloads[name]):
            assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
            assert template["metadata"]["labels"]["ring-controller.atlas"] == "ascend-npu"
            assert template["spec"]["schedulerName"] == "volcano"


def test_groups_are_applied_before_their_pods() -> None:
    kinds = [manifest["kind"] for manifest in made(gang=GANG)]
    assert max(i for i, kind in enumerate(kinds) if kind == "PodGroup") < min(
        i for i, kind in enumerate(kinds) if kind == "Deployment"
    )


def test_ascends_annotations_stand_on_the_group_and_bring_the_ids_of_the_npus() -> None:
    annotations = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "16"}
    manifests = made(gang={**GANG, "annotations": annotations}, accelerator={"chip": "A3"})
    for name, group in of_kind(manifests, "PodGroup").items():
        assert annotations.items() <= group["metadata"]["annotations"].items()
        [template] = templates(of_kind(manifests, "Deployment")[name])
        assert "huawei.com/schedule_policy" not in template["metadata"]["annotations"]
        [ids] = [v for v in template["spec"]["containers"][0]["env"] if v["name"] == "ASCEND_VISIBLE_DEVICES"]
        assert ids["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['huawei.com/Ascend910']"


@pytest.mark.parametrize("gang", [None, GANG], ids=["no gang", "Volcano alone"])
def test_without_ascends_plugin_nobody_writes_the_ids(gang: dict[str, Any] | None) -> None:
    changes = {"gang": gang} if gang else {}
    for workload in of_kind(made(**changes), "Deployment").values():
        [template] = templates(workload)
        assert "ASCEND_VISIBLE_DEVICES" not in str(template["spec"]["containers"][0]["env"])


def test_a_priority_class_goes_to_pods_and_group() -> None:
    manifests = made(gang=GANG, prefill__podTemplate={"spec": {"priorityClassName": "gold"}})
    found = {m["metadata"]["labels"]["serving.kvpp.io/role"]: m for m in of_kind(manifests, "PodGroup").values()}
    assert (found["prefill"]["spec"]["priorityClassName"], "priorityClassName" in found["decode"]["spec"]) == (
        "gold",
        False,
    )
    pods = {
        m["metadata"]["labels"]["serving.kvpp.io/role"]: templates(m)[0]
        for m in of_kind(manifests, "Deployment").values()
    }
    assert pods["prefill"]["spec"]["priorityClassName"] == "gold"


@pytest.mark.parametrize("parallelism", [{"tensor": 8, "expert": True}, TWO_NODES], ids=["one node", "two nodes"])
def test_queue_labels_go_to_the_workload(parallelism: dict[str, Any]) -> None:
    """Kueue looks for them there and marks the pods itself."""
    labels = {"kueue.x-k8s.io/queue-name": "npus", "example.com/team": "a"}
    manifests = made(prefill__parallelism=parallelism, prefill__podTemplate={"metadata": {"labels": labels}})
    [workload] = [
        m
        for m in of_kind(manifests, "Deployment", "LeaderWorkerSet").values()
        if m["metadata"]["labels"]["serving.kvpp.io/role"] == "prefill"
    ]
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "npus"
    for template in templates(workload):
        assert "kueue.x-k8s.io/queue-name" not in template["metadata"]["labels"]
        assert template["metadata"]["labels"]["example.com/team"] == "a"


def test_a_drain_takes_one_pod_of_a_role_at_a_time() -> None:
    budgets = {
        m["metadata"]["labels"].get("serving.kvpp.io/role"): m["spec"]
        for m in made()
        if m["kind"] == "PodDisruptionBudget"
    }
    for role in ("prefill", "decode"):
        assert budgets[role]["maxUnavailable"] == 1
        assert budgets[role]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budgets[role]["selector"]["matchLabels"] == {
            "serving.kvpp.io/deployment": "demo",
            "serving.kvpp.io/role": role,
        }
