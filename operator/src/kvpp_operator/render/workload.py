"""A role's engine → its workload: a Deployment of one pod, or a LeaderWorkerSet of one group over several nodes.

One workload per engine, so that its kv ports are literal in its arguments (ADR 4).
"""

from __future__ import annotations

from typing import Any

from kvpp_operator.plan.model import Plan, RolePlan
from kvpp_operator.render.pod import pod_template

PROGRESS_BEYOND_STARTUP = 600
"""Scheduling and pulling an image come on top of the engine's own start."""


QUEUES = "kueue.x-k8s.io/"
"""Kueue admits Deployments and LeaderWorkerSets by a label of their own and marks the pods itself."""


def workload(plan: Plan, role: RolePlan) -> dict[str, Any]:
    """Without name, index and revision: those come in when the template is filled (render.template)."""
    made = deployment(plan, role) if role.resolved.nodes == 1 else leader_worker_set(plan, role)
    return lifted(made)


def lifted(made: dict[str, Any]) -> dict[str, Any]:
    """Labels for Kueue go from the pods, where `podTemplate` puts them, to the workload."""
    spec = made["spec"]
    group = spec.get("leaderWorkerTemplate", {})
    found: dict[str, str] = {}
    for template in (spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate")):
        labels = template["metadata"]["labels"] if template else {}
        found |= {key: labels.pop(key) for key in list(labels) if key.startswith(QUEUES)}
    return {**made, "metadata": {"labels": found}} if found else made


def deployment(plan: Plan, role: RolePlan) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {},
        "spec": {
            "replicas": 1,
            # NPUs are exclusive: the old pod must be gone first. A Deployment, not a StatefulSet, so that a lost node does
            # not hold the engine hostage.
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": role.startup_seconds + PROGRESS_BEYOND_STARTUP,
            "selector": {"matchLabels": {}},
            "template": pod_template(plan, role, 0),
        },
    }


def leader_worker_set(plan: Plan, role: RolePlan) -> dict[str, Any]:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {},
        "spec": {
            "replicas": 1,
            # The head is Ready only when every rank has joined: waiting for it before starting the others would never end.
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": role.resolved.nodes,
                # A lost rank can't rejoin its HCCL group.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": pod_template(plan, role, 0),
                "workerTemplate": pod_template(plan, role, None),
            },
        },
    }
