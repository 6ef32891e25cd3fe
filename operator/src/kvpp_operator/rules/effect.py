"""Fields that have no effect where they stand: said, never refused (contract, end of the role's table)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvpp_operator.resolve import Resolved
from kvpp_operator.rules.base import Fact, Remove, rule
from kvpp_operator.rules.pool_template import service_template
from kvpp_operator.world import World


def idle(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    """(path, value, why) of each field without effect."""
    spec = resolved.spec
    if not resolved.is_disaggregated:
        if spec.unified is not None and spec.unified.kv_port is not None:
            yield (
                "spec.unified.kvPort",
                spec.unified.kv_port,
                "a unified deployment hands no KV over, so it has no kv ports",
            )
        if spec.router is not None:
            yield "spec.router", spec.router.type, "a router pairs prefill with decode, and this deployment is unified"
        if spec.pooling is None and (spec.kv_transfer.extra_config or spec.kv_transfer.load_failure_policy):
            yield (
                "spec.kvTransfer",
                spec.kv_transfer.load_failure_policy,
                "without prefill and decode or a pool there is no connector",
            )
    if spec.networking.interface is not None and not spec.networking.host_network:
        yield "spec.networking.interface", spec.networking.interface, "pods of the pod network use their own interface"
    yield from idle_in_router(resolved)
    yield from idle_in_roles(resolved)
    yield from idle_in_pool(resolved)


def idle_in_router(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    router = resolved.spec.router
    if router is None or router.type not in ("Kthena", "None") or not resolved.is_disaggregated:
        return
    why = f"with type {router.type} no router pods of ours run"
    fields = (
        ("replicas", "replicas", router.replicas),
        ("service", "service", router.service.type),
        ("pod_template", "podTemplate", None),
    )
    for field, name, value in fields:
        if field in router.model_fields_set:
            yield f"spec.router.{name}", value, why


def idle_in_roles(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    for role in resolved.roles:
        if role.role.graph_capture_sizes is not None and role.role.graph_mode == "Eager":
            yield f"{role.path}.graphCaptureSizes", role.role.graph_capture_sizes, "graphs are off in Eager"
        for written in role.written:
            worker = written.pod_template.get("worker") or {}
            if (
                role.nodes == 1
                and written.path == role.path
                and (worker.get("spec") or any((worker.get("metadata") or {}).values()))
            ):
                path = f"{written.path}.podTemplate.worker"
                yield path, worker.get("spec"), "workers are the node ranks above 0, and this engine fits one node"


def idle_in_pool(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    for written in service_template(resolved):
        worker = written.pod_template.get("worker") or {}
        if worker.get("spec") or any((worker.get("metadata") or {}).values()):
            yield f"{written.path}.podTemplate.worker", None, "a pool's service has no workers"
    yield from idle_in_external_pool(resolved)


def idle_in_external_pool(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    pooling = resolved.spec.pooling
    service = pooling.memcache.meta_service if pooling is not None and pooling.memcache is not None else None
    if service is not None and service.external is not None and pooling is not None and pooling.memcache is not None:
        theirs = "an external MetaService is not ours to run"
        base = "spec.pooling.memcache"
        if service.replicas != 1:
            yield f"{base}.metaService.replicas", service.replicas, theirs
        if service.image.model_fields_set:
            yield f"{base}.metaService.image", service.image.repository or service.image.tag, theirs
        if service.pod_template.model_fields_set:
            yield f"{base}.metaService.podTemplate", None, theirs
        if pooling.memcache.meta_config:
            yield f"{base}.metaConfig", pooling.memcache.meta_config, theirs
    master = pooling.mooncake.master if pooling is not None and pooling.mooncake is not None else None
    if master is not None and master.external is not None:
        theirs = "an external mooncake_master is not ours to run"
        if master.args:
            yield "spec.pooling.mooncake.master.args", master.args, theirs
        if master.image.model_fields_set:
            yield "spec.pooling.mooncake.master.image", master.image.repository or master.image.tag, theirs
        if master.pod_template.model_fields_set:
            yield "spec.pooling.mooncake.master.podTemplate", None, theirs


@rule(
    "EFFECT001",
    severity="warning",
    evidence="guide",
    source="contract: where a field has no effect in a place, a warning says so",
    message="This has no effect: {why}.",
    fix="",
)
def field_without_effect(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A field without effect where it stands."""
    for path, value, why in idle(resolved):
        yield Fact(path, value, (Remove(path),), {"why": why})
