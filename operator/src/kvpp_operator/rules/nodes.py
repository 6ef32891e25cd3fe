"""Devices and nodes: what the parallel sizes ask of machines."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.resolve import Resolved, ResolvedRole
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.world import World

NODES = "design 4.5: nodes = ceil(world / devices per node), the world divides by them"


def on_one_node(role: ResolvedRole) -> tuple[Edit, ...]:
    """The edits that bring an engine down to one node: TP alone, a power of two."""
    sizes, tensor = role.role.parallelism, 1
    while tensor * 2 <= min(sizes.tensor, role.accelerator.devices_per_node):
        tensor *= 2
    wanted = {"tensor": (sizes.tensor, max(tensor, 2)), "pipeline": (sizes.pipeline, 1), "data": (sizes.data, 1),
              "prefillContext": (sizes.prefill_context, 1)}  # fmt: skip
    path = f"{role.path}.parallelism"
    edits: list[Edit] = [Set(f"{path}.{name}", value) for name, (now, value) in wanted.items() if now != value]
    if sizes.pipeline_layers is not None and sizes.pipeline > 1:
        edits.append(Remove(f"{path}.pipelineLayers"))
    return tuple(edits)


@rule(
    "NODE001",
    severity="error",
    evidence="guide",
    source=f"{NODES}; vLLM 0.30 ParallelConfig: the world must divide by nnodes",
    message="An engine of {world} ranks needs {nodes} nodes of {per_node} NPUs, and {world} does not divide by {nodes}.",
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
    source="reference: vLLM Ascend on real Kubernetes, section 0: MindCluster gives a pod of A3 one NPU or an even number",
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
    source="design 4.5: a DP replica lies inside a node or on whole nodes; vLLM 0.30 infers its ranks from nnodes",
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
    source="launch facts 6.1: keep TP inside a node and PP between nodes; 11.1: the KVPP broadcast then crosses nodes",
    message="A group of {group} TP x PCP ranks does not fit into one node of {per_node} NPUs: each layer's traffic, the "
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
    source="reference: vLLM Ascend on real Kubernetes, section 2.1: an instance of several pods takes whole nodes",
    message="Each of {nodes} pods asks for {value} of a node's {per_node} NPUs; schedulers for Ascend expect whole nodes there.",
    fix="",
)
def several_nodes_in_part(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Several nodes, none of them whole."""
    for role in resolved.roles:
        per_node = role.accelerator.devices_per_node
        if role.nodes > 1 and not role.devices % role.nodes and role.devices_per_pod < per_node:
            words = {"nodes": role.nodes, "per_node": per_node}
            yield Fact(f"{role.path}.parallelism", role.devices_per_pod, on_one_node(role), words)
