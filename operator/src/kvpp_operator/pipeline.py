"""document → judgement → plan → objects: the pure path that admission, the command line and the controller share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvpp_operator import names
from kvpp_operator.configuration import Configuration
from kvpp_operator.ledger.pods import NoRoom, RoleBlock, pod_network_blocks
from kvpp_operator.manifest import DeploymentKey, Manifest, Owner, apply_order, stamp
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.planner import plan, pod_network_ports
from kvpp_operator.ports import PortRange
from kvpp_operator.render.objects import objects, revision_of
from kvpp_operator.resolve import Resolved
from kvpp_operator.revision import Revision
from kvpp_operator.rules import Judgement, judge
from kvpp_operator.world import OFFLINE, World


@dataclass(frozen=True)
class Planned:
    """One document's way through the pipeline; without a plan where it was refused."""

    judgement: Judgement
    plan: Plan | None


def plan_together(documents: Sequence[Any], configuration: Configuration, world: World = OFFLINE) -> list[Planned]:
    """Several deployments judged and planned as one cluster, in their order."""
    return [plan_one(document, configuration, world) for document in documents]


def plan_one(document: Any, configuration: Configuration, world: World = OFFLINE) -> Planned:
    judgement = judge(document, configuration, world)
    if judgement.resolved is None or not judgement.accepted:
        return Planned(judgement, None)
    return Planned(judgement, plan_on_pod_network(judgement.resolved))


def plan_on_pod_network(resolved: Resolved) -> Plan:
    """No claims: addresses differ, so every role has one fixed block."""
    blocks = kv_blocks(resolved)
    assert not isinstance(blocks, NoRoom)  # rule PORT001
    return plan(resolved, pod_network_ports(resolved, blocks))


def kv_blocks(resolved: Resolved) -> dict[str, PortRange] | NoRoom:
    """Block of each role that hands KV over; a unified role has none. Lengths alone decide, so replicas move nothing."""
    roles = {role.name: RoleBlock(role.kv_block_length, role.role.kv_port) for role in resolved.roles if role.name != "unified"}
    return pod_network_blocks(roles, resolved.kv_window)


def wished(planned: Plan, revision: Revision | None = None, uid: str = "") -> list[Manifest]:
    """What the deployment owns, stamped and in the order of applying. Offline there is no uid to refer to."""
    deployment = planned.resolved.deployment.metadata
    owner = Owner(DeploymentKey(deployment.namespace, deployment.name), uid)
    labels = names.base_labels(deployment.name)
    made = objects(planned, revision or revision_of(planned))
    return sorted((stamp(manifest, labels=labels, owner=owner) for manifest in made), key=apply_order)
