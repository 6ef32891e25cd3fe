"""Devices and nodes: what the parallel sizes ask of machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from kvpp_operator.catalogue.chips import TRANSFER_ENV, shared_memory
from kvpp_operator.quantity import quantity
from kvpp_operator.resolve import Resolved, ResolvedRole, Written
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.fragments import containers
from kvpp_operator.world import World

NODES = "docs/nodes.md, NPUs of a pod: nodes = ceil(world / devices per node), the world divides by them"


SIZES = ("pipeline", "data", "prefillContext", "tensor")
"""In the order in which they are given up."""


def on_one_node(role: ResolvedRole) -> tuple[Edit, ...]:
    """The edits that bring an engine down to one node: smaller sizes, powers of two, TP last."""
    given, room = role.role.parallelism, role.accelerator.devices_per_node
    before = {
        "pipeline": given.pipeline,
        "data": given.data,
        "prefillContext": given.prefill_context,
        "tensor": given.tensor,
    }
    sizes = dict(before)
    for name in SIZES:
        others = prod(size for other, size in sizes.items() if other != name)
        if others * sizes[name] > room:
            sizes[name] = largest_power(room // others, at_least=2 if name == "tensor" and role.kvpp else 1)
    path = f"{role.path}.parallelism"
    edits: list[Edit] = [Set(f"{path}.{name}", size) for name, size in sizes.items() if before[name] != size]
    if given.pipeline_layers is not None and sizes["pipeline"] != given.pipeline:
        edits.append(Remove(f"{path}.pipelineLayers"))
    return tuple(edits)


def largest_power(limit: int, at_least: int) -> int:
    """The largest power of two up to a limit."""
    return max(at_least, 1 << max(limit, 1).bit_length() - 1)


@rule(
    "NODE001",
    severity="error",
    evidence="guide",
    source=f"{NODES}; vLLM 0.30 ParallelConfig: the world must divide by nnodes",
    message="An engine of {world} ranks needs {nodes} nodes of {per_node} NPUs, and {world} does not divide by "
    "{nodes}.",
    fix="",
)
def ranks_do_not_divide_by_nodes(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Ranks that can't be spread evenly over nodes."""
    for role in resolved.roles:
        if role.devices % role.nodes:
            words = {"world": role.devices, "nodes": role.nodes, "per_node": role.accelerator.devices_per_node}
            yield Fact(f"{role.path}.parallelism", role.devices, on_one_node(role), words)


@rule(
    "NODE002",
    severity="error",
    evidence="guide",
    source="launch facts 12.1: MindCluster gives a pod of A3 one NPU or an even number",
    message="Each pod asks for {value} NPUs; on {chip} a part of a node is one NPU or an even number.",
    fix="",
)
def odd_part_of_a_node(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A part of a node that the device plugin does not give."""
    for role in resolved.roles:
        asked, even = role.devices_per_pod, role.accelerator.chip.even_devices
        if even and asked > 1 and asked % 2 and not role.devices % role.nodes:
            fix = (Set(f"{role.path}.parallelism.tensor", role.tensor + 1),) if role.nodes == 1 else on_one_node(role)
            yield Fact(f"{role.path}.parallelism", asked, fix, {"chip": role.accelerator.chip.name})


@rule(
    "NODE003",
    severity="error",
    evidence="guide",
    source="docs/nodes.md, NPUs of a pod: a DP replica lies inside a node or on whole nodes; vLLM 0.30 "
    "infers its ranks from nnodes",
    message="A DP replica of {replica} ranks neither fits whole into a pod of {per_pod} NPUs nor fills whole pods.",
    fix="",
)
def replica_across_a_node_boundary(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A DP replica that lies on parts of several nodes."""
    for role in resolved.roles:
        replica, per_pod = role.role.parallelism.replica, role.devices_per_pod
        if role.nodes > 1 and not role.devices % role.nodes and per_pod % replica and replica % per_pod:
            yield Fact(f"{role.path}.parallelism", replica, on_one_node(role), {"replica": replica, "per_pod": per_pod})


@rule(
    "NODE004",
    severity="warning",
    evidence="guide",
    source="launch facts 6.1: keep TP inside a node and PP between nodes; launch facts 11.1 (TP over nodes): "
    "the KVPP broadcast then crosses nodes",
    message="A group of {group} TP x PCP ranks does not fit into one node of {per_node} NPUs: each layer's traffic, "
    "the "
    "KVPP broadcast included, crosses nodes.",
    fix="or split the layers over the nodes with pipeline",
)
def group_across_nodes(resolved: Resolved, _: World) -> Iterator[Fact]:
    """TP or PCP across nodes."""
    for role in resolved.roles:
        group, per_node = role.role.parallelism.kvpp_group, role.accelerator.devices_per_node
        if group > per_node:
            words = {"group": group, "per_node": per_node}
            yield Fact(f"{role.path}.parallelism.tensor", role.tensor, on_one_node(role), words)


@rule(
    "NODE005",
    severity="warning",
    evidence="guide",
    source="launch facts 6.1: PP with DP lacks RoCE support across nodes (vllm-ascend #15254)",
    message="Pipeline and data parallelism together on several nodes lack support across nodes over RoCE.",
    fix="or keep the engine on one node",
)
def pipeline_and_data_across_nodes(resolved: Resolved, _: World) -> Iterator[Fact]:
    """PP and DP of one engine on several nodes."""
    for role in resolved.roles:
        if role.pipeline > 1 and role.data > 1 and role.nodes > 1:
            path = f"{role.path}.parallelism.data"
            yield Fact(path, role.data, (Set(path, 1),))


@rule(
    "NODE006",
    severity="warning",
    evidence="guide",
    source="launch facts 12.1: an instance of several pods takes whole nodes",
    message="Each of {nodes} pods asks for {value} of a node's {per_node} NPUs; schedulers for Ascend expect whole "
    "nodes there.",
    fix="",
)
def several_nodes_in_part(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Several nodes, none of them whole."""
    for role in resolved.roles:
        per_node = role.accelerator.devices_per_node
        if role.nodes > 1 and not role.devices % role.nodes and role.devices_per_pod < per_node:
            words = {"nodes": role.nodes, "per_node": per_node}
            yield Fact(f"{role.path}.parallelism", role.devices_per_pod, on_one_node(role), words)


@rule(
    "NODE007",
    severity="error",
    evidence="guide",
    source="launch facts 4.3 (Ascend env by hardware): RoCE or HCCS on A2 and A3, UB or UBoE on 950",
    message="{value} is no interconnect of {chip}; it has {legal}.",
    fix="",
)
def interconnect_of_another_chip(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An interconnect that the chip does not have."""
    seen: set[str] = set()
    for role in resolved.roles:
        chip, chosen = role.accelerator.chip.name, role.accelerator.interconnect
        legal = [name for known, name in TRANSFER_ENV if known == chip]
        own = role.role.accelerator.interconnect is not None
        path = f"{role.path if own else 'spec'}.accelerator.interconnect"
        written = own or resolved.spec.accelerator.interconnect == chosen
        if chosen not in legal and written and path not in seen:
            seen.add(path)
            yield Fact(path, chosen, (Remove(path),), {"chip": chip, "legal": " or ".join(legal)})


@rule(
    "NODE008",
    severity="warning",
    evidence="guide",
    source="launch facts 4.3 (Ascend env by hardware): the transport is set up by interconnect",
    message="Prefill's {prefill} speaks {first}, decode's {decode} speaks {second}; nobody has validated a hand-over "
    "between them.",
    fix="",
)
def roles_on_different_fabrics(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Prefill and decode on chips with different interconnects."""
    prefill, decode = resolved.role("prefill"), resolved.role("decode")
    if prefill is None or decode is None:
        return
    first, second = prefill.accelerator, decode.accelerator
    if first.interconnect != second.interconnect:
        words = {
            "prefill": first.chip.name,
            "first": first.interconnect,
            "decode": second.chip.name,
            "second": second.interconnect,
        }
        overridden = [role.path for role in (prefill, decode) if role.role.accelerator.model_fields_set]
        fix = tuple(Remove(f"{path}.accelerator") for path in overridden)
        yield Fact(f"{overridden[0] if overridden else 'spec'}.accelerator", first.chip.name, fix, words)


@rule(
    "NODE009",
    severity="warning",
    evidence="guide",
    source="launch facts 12.4: the pool guide starts 950 containers privileged; nobody "
    "has shown /dev/ummu and /dev/uburma at work without",
    message="Engines on {value} join the pool unprivileged, which is not verified: only privileged examples are published.",
    fix="or say securityContext.privileged of container vllm in podTemplate, either way",
)
def unverified_without_privileges(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A pool on 950, where only privileged containers have been shown."""
    for role in resolved.roles:
        chip = role.accelerator.chip.name
        is_said = any("privileged" in context for written in role.written for context in security_contexts(written))
        if resolved.spec.pooling is not None and role.name != "decode" and chip.startswith("950") and not is_said:
            yield Fact("spec.pooling", chip, (Remove("spec.pooling"),))


def security_contexts(written: Written) -> Iterator[Mapping[str, Any]]:
    for _path, container in containers(written):
        context = container.get("securityContext")
        if isinstance(context, Mapping):
            yield context


@rule(
    "NODE010",
    severity="warning",
    evidence="guide",
    source="contract, sharedMemory: it counts in a memory limit if there is one; Kubernetes charges pages of a memory volume "
    "to the container",
    message="Shared memory may hold {shared}, but the engine's container is limited to {value} of memory, which it counts in.",
    fix="or set sharedMemory to less",
)
def memory_limit_below_shared_memory(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A memory limit that /dev/shm alone could use up."""
    for role in resolved.roles:
        shared = role.role.shared_memory or shared_memory(role.devices_per_pod)
        for written in role.written:
            for path, container in containers(written):
                limit = memory_limit(container)
                least, most = quantity(shared), quantity(limit)
                if least is not None and most is not None and most < least:
                    place = f"{path}.resources.limits.memory"
                    yield Fact(place, limit, (Remove(place),), {"shared": shared})


def memory_limit(container: Mapping[str, Any]) -> Any:
    resources = container.get("resources")
    limits = resources.get("limits") if isinstance(resources, Mapping) else None
    return limits.get("memory") if isinstance(limits, Mapping) else None
