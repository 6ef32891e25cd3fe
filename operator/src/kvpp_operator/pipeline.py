"""document → judgement → plan → objects: the pure path that admission, the command line and the controller share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kvpp_operator import names
from kvpp_operator.configuration import Configuration
from kvpp_operator.engine_ports import PortPlan, claimed_plan, claims_asked, owner_of, pod_network_plan, pool_ports
from kvpp_operator.ledger import claim as claims
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.ledger.live import holders
from kvpp_operator.ledger.pods import NoRoom
from kvpp_operator.ledger.refusal import Refusal
from kvpp_operator.ledger.settle import Settled, settle
from kvpp_operator.manifest import DeploymentKey, Manifest, Owner, apply_order, stamp
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.planner import plan_roles, pool_on_host, with_engines
from kvpp_operator.ports import reserved_ranges
from kvpp_operator.render.objects import objects, revision_of
from kvpp_operator.render.pool.kept import KeptPools, kept_pools
from kvpp_operator.revision import Revision, from_manifest, newest
from kvpp_operator.rules import Judgement, judge
from kvpp_operator.world import OFFLINE, World


@dataclass(frozen=True)
class Planned:
    """One document's way through the pipeline."""

    judgement: Judgement
    roles: Plan | None = None
    """What all engines of a role have in common; None where the document was refused."""
    plan: Plan | None = None
    """`roles` with their engines; None where the document was refused, or no ports could be had."""
    revision: Revision | None = None
    """What the engines are made from: the kept revision while the user's wish is the same."""
    fresh: Revision | None = None
    """What this operator would make of the spec today."""
    pools: KeptPools | None = None
    """What the pools are made from, as with engines."""
    settled: Settled | None = None
    """The port ledger as it should be, with what the deployment claims and frees."""
    refusal: Refusal | NoRoom | None = None
    uid: str = ""


ChooseRevision = Callable[[Revision], Revision]


def plan_one(
    document: Any, configuration: Configuration, world: World = OFFLINE, choose: ChooseRevision = lambda fresh: fresh
) -> Planned:
    """`choose` decides between a fresh revision and the one that is kept."""
    drafted = draft(judge(document, configuration, world), choose)
    settled = settle_ports(drafted, world)
    return drafted if settled is None else complete(drafted, settled, world)


def draft(judgement: Judgement, choose: ChooseRevision) -> Planned:
    """Everything but ports: what does not depend on the ledger, and is done once however often the ledger changes."""
    if judgement.resolved is None or not judgement.accepted:
        return Planned(judgement)
    roles = plan_roles(judgement.resolved)
    fresh = revision_of(roles)
    return Planned(judgement, roles, revision=choose(fresh), fresh=fresh)


def settle_ports(drafted: Planned, world: World) -> Settled | None:
    """One turn on the ledger: heal it by what runs, free what nobody has any more, claim what is missing.

    On the pod network engines claim nothing, but what the deployment claimed before its move is freed once its pods are gone.
    None: the document was refused, and no claim changes.
    """
    if drafted.roles is None or drafted.revision is None:
        return None
    resolved = drafted.roles.resolved
    wanted = claims_asked(resolved, drafted.revision.hash)
    owners = namesakes(world.ledger, owner_of(resolved))
    if not (wanted or owners or world.live_claims):
        return Settled(world.ledger)
    return settle(
        world.ledger,
        wanted,
        live=world.live_claims,
        keep=holders(world.signs, world.ledger),
        owners=owners,
        reserved=reserved_ranges(resolved.npus_per_node, resolved.reserved_ports),
    )


def complete(drafted: Planned, settled: Settled, world: World = OFFLINE) -> Planned:
    """The draft with its engines and pools, now that ports are known."""
    assert drafted.roles is not None
    planned, resolved = replace(drafted, settled=settled), drafted.roles.resolved
    if settled.refusal is not None:
        return replace(planned, refusal=settled.refusal)
    is_claimed = resolved.spec.networking.host_network
    ports = claimed_plan(resolved, settled.claims) if is_claimed else pod_network_plan(resolved)
    planned = with_ports(planned, pool_on_host(drafted.roles, pool_ports(resolved, settled.claims)), ports)
    if planned.plan is None or planned.revision is None:
        return planned
    return replace(planned, pools=kept_pools(planned.plan, planned.revision, world.owned.values()))


def with_ports(planned: Planned, roles: Plan, ports: PortPlan | NoRoom) -> Planned:
    if isinstance(ports, NoRoom):
        return replace(planned, refusal=ports)
    return replace(planned, plan=with_engines(roles, ports.ports))


def namesakes(ledger: Ledger, owner: claims.Owner) -> set[claims.Owner]:
    """Who holds ports under the owner's name: itself, and those it replaced, whose claims it frees."""
    holders = {claim.holder.owner for claim in ledger}
    return {other for other in holders if (other.namespace, other.name) == (owner.namespace, owner.name)}


def plan_together(
    documents: Sequence[Any], configuration: Configuration, worlds: Sequence[World] = ()
) -> list[Planned]:
    """Several deployments judged and planned as one cluster, in their order: blocks of one are taken for the next.

    `worlds` has one for each document, read from a cluster; without it nothing exists yet.
    """
    results: list[Planned] = []
    ledger: Ledger | None = None
    for document, world in zip(documents, worlds or [OFFLINE] * len(documents), strict=True):
        seen = world if ledger is None else replace(world, ledger=ledger)
        kept = newest(stored_revisions(seen))
        planned = plan_one(document, configuration, seen, partial(choose_revision, kept=kept))
        results.append(replace(planned, uid=world.uid))
        if planned.settled is not None and planned.refusal is None:
            ledger = planned.settled.ledger
    return results


def choose_revision(fresh: Revision, kept: Revision | None) -> Revision:
    """The kept one while the user's wish is the same; else the fresh one, numbered as the newest (ADR 5)."""
    if kept is None:
        return fresh
    usable = kept.templates.keys() == fresh.templates.keys()
    if usable and kept.spec_hash == fresh.spec_hash:
        return kept
    if kept.hash == fresh.hash:  # the wish was said differently and means the same
        return kept
    return replace(fresh, number=kept.number + 1)


def stored_revisions(world: World) -> list[Revision]:
    found = (from_manifest(manifest) for key, manifest in world.owned.items() if key.kind == "ControllerRevision")
    return [revision for revision in found if revision is not None]


def wished_of(planned: Planned) -> list[Manifest]:
    """The objects of an accepted document."""
    return [] if planned.plan is None else wished(planned.plan, planned.revision, planned.pools, planned.uid)


def wished(
    planned: Plan, revision: Revision | None = None, pools: KeptPools | None = None, uid: str = ""
) -> list[Manifest]:
    """What the deployment owns, stamped and in the order of applying. Offline there is no uid to refer to."""
    deployment = planned.resolved.deployment.metadata
    owner = Owner(DeploymentKey(deployment.namespace, deployment.name), uid)
    labels = names.base_labels(deployment.name)
    made = objects(planned, revision or revision_of(planned), pools)
    return sorted((stamp(manifest, labels=labels, owner=owner) for manifest in made), key=apply_order)
