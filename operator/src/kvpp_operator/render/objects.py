"""The table of contents of all we own: from a plan, or from what a revision keeps, to manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import EnginePlan, Plan, RolePlan
from kvpp_operator.render.account import engine_account
from kvpp_operator.render.budget import disruption_budget
from kvpp_operator.render.gang import of_engine, pod_group
from kvpp_operator.render.pool.engine import engine_config, joins
from kvpp_operator.render.pool.kept import KeptPools, kept_pools, manifests_of
from kvpp_operator.render.router import router_objects
from kvpp_operator.render.service import role_service
from kvpp_operator.render.template import Template, fill, seal, template_hash
from kvpp_operator.render.workload import workload
from kvpp_operator.revision import Revision, spec_hash, to_manifest


def revision_of(plan: Plan) -> Revision:
    """What this plan's engines are made from."""
    templates: dict[str, Template] = {role.name: template(plan, role) for role in plan.roles}
    return Revision(template_hash(templates), spec_hash(plan.resolved.spec), templates)


def template(plan: Plan, role: RolePlan) -> Template:
    """Sealed, with the ConfigMap that its pods mount and the group that they join: what is kept of them is kept whole."""
    config = engine_config(plan) if joins(plan, role) else None
    sealed = seal(workload(plan, role))
    group = pod_group(plan, role, sealed)
    return {**sealed, **({"config": config} if config else {}), **({"gang": group} if group else {})}


def objects(plan: Plan, revision: Revision, pools: KeptPools | None = None) -> list[Manifest]:
    """Everything that the deployment owns, unstamped. Engines and pools come from what is kept of them, which may be older than
    the plan's own; None: nothing is yet.
    """
    name, namespace = plan.resolved.name, plan.resolved.namespace
    pools = pools or kept_pools(plan, revision, ())
    return [
        engine_account(name, namespace),
        to_manifest(revision, name, namespace),
        *(role_service(name, namespace, role.name) for role in plan.roles),
        *(disruption_budget(name, namespace, role.name) for role in plan.roles),
        *manifests_of(pools, name, namespace),
        *router_objects(plan, revision.hash),
        *(kept["config"] for kept in revision.templates.values() if "config" in kept),
        *engines(name, namespace, revision, plan.engines),
    ]


def engines(name: str, namespace: str, revision: Revision, planned: Iterable[EnginePlan]) -> Iterator[Manifest]:
    """Each engine's workload, and its PodGroup where the revision has gangs."""
    for engine in planned:
        if engine.role not in revision.templates:
            continue
        sealed = revision.templates[engine.role]
        made = fill(
            sealed,
            deployment=name,
            namespace=namespace,
            role=engine.role,
            index=engine.index,
            revision=revision.hash,
            ports=engine.ports.numbers,
        )
        if "gang" in sealed:
            yield of_engine(sealed["gang"], made)
        yield made
