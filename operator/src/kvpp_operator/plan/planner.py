"""(resolved spec, world) → plan: defaults filled, ports given out, devices counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvpp_operator.api.base import duration_seconds
from kvpp_operator.api.model import Image
from kvpp_operator.catalogue.chips import shared_memory
from kvpp_operator.engine_ports import EnginePortsByEngine
from kvpp_operator.plan.connectors import connectors
from kvpp_operator.plan.model import EnginePlan, Plan, RolePlan
from kvpp_operator.plan.pool import plan_pool
from kvpp_operator.plan.weights import last_part, weights
from kvpp_operator.resolve import Resolved, ResolvedRole

POD_INTERFACE = "eth0"
CPUS_PER_DEVICE = 5
"""The engine binds its threads to CPUs on ARM hosts and wants five for each NPU (launch facts 11.1, CPU)."""

START_SECONDS = 1800
START_SECONDS_PER_GIGABYTE = 3
"""A load of 700 GB takes up to an hour (launch facts 10.3); what is asked is a budget, not a wait."""


def plan_roles(resolved: Resolved) -> Plan:
    """Everything that engines of a role have in common; engines come in with their ports (`with_engines`)."""
    roles = tuple(plan_role(resolved, role) for role in resolved.roles)
    return Plan(resolved, roles, (), plan_pool(resolved, roles[0].image))


def pool_on_host(plan: Plan, ports: Mapping[str, int] | None) -> Plan:
    """Let the pool's service bind these ports of its host. Engines reach it by its Service, whose ports stay."""
    if plan.pool is None or plan.pool.service is None or ports is None:
        return plan
    return replace(plan, pool=replace(plan.pool, service=replace(plan.pool.service, ports=ports)))


def with_engines(plan: Plan, ports: EnginePortsByEngine) -> Plan:
    """`ports` has an entry for each engine (role, index)."""
    engines = tuple(
        EnginePlan(role.name, index, ports[role.name, index])
        for role in plan.resolved.roles
        for index in range(role.replicas)
    )
    return replace(plan, engines=engines)


def plan_role(resolved: Resolved, role: ResolvedRole) -> RolePlan:
    spec, model = resolved.spec, resolved.model
    draft = role.speculative.draft_model if role.speculative else None
    image = spec.engine.image
    profile = model if spec.model.profile else None
    return RolePlan(
        resolved=role,
        image=image_reference(resolved, role, image),
        pull_policy=image.pull_policy
        or ("IfNotPresent" if image.digest or resolved.release.name != "latest" else "Always"),
        weights=weights(spec.model.source, "model"),
        draft=weights(draft, "draft") if draft else None,
        served_name=spec.model.served_name or spec.model.profile or last_part(spec.model.source) or resolved.name,
        trust_remote_code=spec.model.trust_remote_code
        or (spec.model.trust_remote_code is None and bool(profile and profile.trust_remote_code)),
        connectors=connectors(resolved, role),
        model_runner_v2=needs_model_runner_v2(role),
        startup_seconds=startup_seconds(resolved, role),
        shutdown_seconds=duration_seconds(role.role.shutdown_timeout),
        shared_memory=role.role.shared_memory or shared_memory(role.devices_per_pod),
        cpus=role.devices_per_pod * CPUS_PER_DEVICE,
        interface=interface(resolved),
        apart_from={"prefill": "decode", "decode": "prefill"}.get(role.name)
        if not spec.networking.host_network
        else None,  # type: ignore[arg-type]
    )


def image_reference(resolved: Resolved, role: ResolvedRole, image: Image) -> str:
    """`repository:tag` or `repository@digest`; the tag follows version and chip unless the user names one."""
    repository = image.repository or resolved.configuration.image_repository
    if image.digest:
        return f"{repository}:{image.tag}@{image.digest}" if image.tag else f"{repository}@{image.digest}"
    version = resolved.spec.engine.version
    tag = resolved.release.tag if version == "latest" else f"v{version}"
    return f"{repository}:{image.tag or tag + role.accelerator.chip.image_suffix}"


def needs_model_runner_v2(role: ResolvedRole) -> bool:
    """PCP, and PP together with a DSpark or Eagle3 draft, run on Model Runner V2 only; DSA-CP on V1 only (launch facts 11.1, Runner)."""
    if role.additional_config.get("enable_dsa_cp") is True:
        return False
    drafted = role.speculative is not None and role.speculative.method in ("DSpark", "Eagle3")
    return role.prefill_context > 1 or (role.pipeline > 1 and drafted)


def startup_seconds(resolved: Resolved, role: ResolvedRole) -> int:
    if role.role.startup_timeout:
        return duration_seconds(role.role.startup_timeout)
    size = resolved.model.weight_gigabytes if resolved.model and resolved.model.weight_gigabytes else 0
    return START_SECONDS + size * START_SECONDS_PER_GIGABYTE


def interface(resolved: Resolved) -> str:
    if not resolved.spec.networking.host_network:
        return POD_INTERFACE
    return resolved.spec.networking.interface or resolved.configuration.interface or ""
