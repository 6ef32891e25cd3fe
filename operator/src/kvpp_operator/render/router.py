"""What stands in front of prefill and decode: the router's pods and rights, or what a foreign router needs to know.

`None` leaves the Services of the members, whose labels tell role and revision: whoever stands in front follows those.

A router pod has two containers: the P/D proxy of the engine's own release on loopback, and the agent, which is the only
listener and follows the EndpointSlices of one revision (kvpp_operator.router).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvpp_operator import names, versions
from kvpp_operator.api.v1alpha1 import Router, RouterService
from kvpp_operator.render.kthena import model_route, model_server
from kvpp_operator.render.merge import merge_pod
from kvpp_operator.render.router_pod import RouterPod, pod_template

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvpp_operator.manifest import Manifest
    from kvpp_operator.plan.model import Plan

PORT = 8000
MEMBERS = ("prefill", "decode")


@dataclass(frozen=True)
class RouterPlan:
    """Everything decided about a deployment's router."""

    deployment: str
    namespace: str
    type: str
    """Proxy, Kthena or None."""
    replicas: int
    service: RouterService
    pod: RouterPod
    overrides: tuple[dict[str, Any], ...]
    """The user's podTemplate."""
    served_name: str
    api_port: int
    """Of all engines; only a foreign router needs one number for all."""

    @property
    def name(self) -> str:
        """Of everything that a deployment's router has once."""
        return names.part(self.deployment, names.ROUTER)


def router_plan(plan: Plan, image: str, pull_policy: str = "IfNotPresent") -> RouterPlan | None:
    """From the plan; None without prefill and decode: one Service is enough then. `image`: of the router."""
    if not plan.resolved.is_disaggregated:
        return None
    spec = plan.resolved.spec
    router = spec.router or Router()
    release = plan.resolved.release if plan.resolved.release != versions.LATEST else versions.NEWEST_PINNED
    return RouterPlan(
        deployment=plan.resolved.name,
        namespace=plan.resolved.namespace,
        type=router.type or "Proxy",
        replicas=router.replicas,
        service=router.service,
        pod=RouterPod(
            deployment=plan.resolved.name,
            name=names.part(plan.resolved.name, names.ROUTER),
            image=image,
            pull_policy=pull_policy,
            pull_secrets=tuple(secret.name for secret in spec.image_pull_secrets),
            release=release.name,
            api_key=spec.api_key_secret_ref,
            shutdown_seconds=max(role.shutdown_seconds for role in plan.roles),
            port=PORT,
        ),
        overrides=(router.pod_template.model_dump(mode="json", by_alias=True, exclude_none=True),),
        served_name=plan.roles[0].served_name,
        api_port=plan.engines[0].ports.numbers["api"] if plan.engines else PORT,
    )


def router_objects(plan: Plan, serving: str) -> list[Manifest]:
    """Everything in front of a plan's engines but the role's own Services. `serving`: the revision that gets requests."""
    planned = router_plan(plan, plan.resolved.configuration.router_image)
    return [] if planned is None else router(planned, serving, ())


def router(planned: RouterPlan, serving: str, revisions: Iterable[str]) -> list[Manifest]:
    """All of its objects. `serving`: the revision that gets requests; `revisions`: all that have engines."""
    members = [member_service(planned, name, one) for one in sorted({serving, *revisions}) for name in MEMBERS]
    if planned.type == "Kthena":
        return [
            model_server(planned.deployment, metadata(planned), planned.served_name, planned.api_port),
            model_route(metadata(planned), planned.served_name),
        ]
    if planned.type == "None":
        return members
    return [
        service_account(planned),
        role(planned),
        role_binding(planned),
        report(planned),
        service(planned, serving),
        disruption_budget(planned),
        *members,
        workload(planned),
    ]


def metadata(planned: RouterPlan, name: str = "", **labels: str) -> dict[str, Any]:
    own = {**names.base_labels(planned.deployment), names.COMPONENT: names.ROUTER, **labels}
    return {"name": name or planned.name, "namespace": planned.namespace, "labels": own}


def selector(planned: RouterPlan) -> dict[str, str]:
    return {names.DEPLOYMENT: planned.deployment, names.COMPONENT: names.ROUTER}


def service_account(planned: RouterPlan) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(planned),
        "automountServiceAccountToken": False,
    }


def role(planned: RouterPlan) -> Manifest:
    """Read who the members are and which revision serves; write one report."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(planned),
        "rules": [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
            {
                "apiGroups": [""],
                "resources": ["services"],
                "resourceNames": [planned.name],
                "verbs": ["get", "list", "watch"],
            },
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [planned.name], "verbs": ["patch"]},
        ],
    }


def role_binding(planned: RouterPlan) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(planned),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": planned.name},
        "subjects": [{"kind": "ServiceAccount", "name": planned.name, "namespace": planned.namespace}],
    }


def report(planned: RouterPlan) -> Manifest:
    """Empty: each router pod keeps one key of it, its standing as JSON."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(planned)}


def service(planned: RouterPlan, serving: str) -> Manifest:
    """The address of the deployment. Its revision label tells the agents whom to serve: a switch restarts no router."""
    annotations = {"annotations": dict(planned.service.annotations)} if planned.service.annotations else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata(planned, **{names.REVISION: serving}), **annotations},
        "spec": {
            "type": planned.service.type,
            "selector": selector(planned),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def member_service(planned: RouterPlan, role_name: str, revision: str) -> Manifest:
    """Heads of one role and revision. Headless: only its EndpointSlices are of use, which carry its labels."""
    suffix = f"{names.SHORT_ROLE[role_name]}-{revision}"
    chosen = {names.ROLE: role_name, names.REVISION: revision}
    labels = {names.COMPONENT: role_name, **chosen}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(planned, names.part(planned.deployment, suffix), **labels),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": {names.DEPLOYMENT: planned.deployment, **chosen, names.HEAD: "true"},
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def disruption_budget(planned: RouterPlan) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(planned),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(planned)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def workload(planned: RouterPlan) -> Manifest:
    template = pod_template(planned.pod, metadata(planned)["labels"], selector(planned))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(planned),
        "spec": {
            "replicas": planned.replicas,
            # A new router takes over before an old one goes: it costs no NPU.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector(planned)},
            "template": merge_pod(template, planned.overrides),
        },
    }
