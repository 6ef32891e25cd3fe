"""(body, world, configuration) → what should be, and what to say about it. Everything the controller decides, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvpp_operator import capacity, names
from kvpp_operator.api.v1alpha1 import ROLES
from kvpp_operator.configuration import Configuration
from kvpp_operator.ledger.claim import Claim, Holder, Ledger
from kvpp_operator.ledger.live import holder_of, kv_block
from kvpp_operator.ledger.pods import NoRoom
from kvpp_operator.ledger.refusal import Refusal, Taken
from kvpp_operator.ledger.settle import Settled
from kvpp_operator.manifest import Key, Manifest
from kvpp_operator.pipeline import Planned, choose_revision, complete, draft, settle_ports, stored_revisions, wished
from kvpp_operator.plan.model import Plan
from kvpp_operator.ports import PortRange
from kvpp_operator.report.engines import WantedEngine
from kvpp_operator.report.status import Outcome as Ports
from kvpp_operator.report.status import Report
from kvpp_operator.revision import Revision, newest
from kvpp_operator.rules import Judgement, judge
from kvpp_operator.rules.base import Finding
from kvpp_operator.world import World

WORKLOADS = ("Deployment", "LeaderWorkerSet")

COLD_POOL = "POOL050"
"""The rule that says what a change costs a pool: before anything is applied, and until all is up."""


@dataclass(frozen=True)
class Decision:
    wished: tuple[Manifest, ...] | None
    """None: nothing is applied and nothing pruned; what runs, runs."""
    wanted: tuple[WantedEngine, ...]
    report: Report
    """Complete but for what applying and looking at engines brings."""
    settled: Settled | None = None
    """The port ledger as it must be before anything is applied; None: nothing was planned, and no claim changes."""
    starting: tuple[Claim, ...] = ()
    """Claims of engines that have no workload yet."""
    make_way: tuple[Key, ...] = ()
    """Workloads of an older revision that stand on ports which the new one is pinned to: they go first."""


def decide(body: Mapping[str, Any], world: World, configuration: Configuration) -> Decision:
    drafted = draft_of(body, world, configuration)
    return conclude(body, world, drafted, settle_ports(drafted, world))


def draft_of(body: Mapping[str, Any], world: World, configuration: Configuration) -> Planned:
    """Everything but ports. The rules see no ledger: a spec is not invalid because others hold its ports just now."""
    kept = newest(stored_revisions(world))
    judgement = judge(body, configuration, replace(world, ledger=Ledger()))
    if judgement.deployment is not None and judgement.deployment.spec.suspend:
        return Planned(judgement)
    return draft(judgement, lambda fresh: choose_revision(fresh, kept))


def conclude(body: Mapping[str, Any], world: World, drafted: Planned, settled: Settled | None) -> Decision:
    """The decision, once the ledger has answered."""
    kept = newest(stored_revisions(world))
    report = first_report(body, drafted.judgement, kept)
    planned = drafted if settled is None else complete(drafted, settled, world)
    if planned.plan is None or planned.revision is None or planned.fresh is None:
        older = engines_in_the_way(planned.refusal)
        if planned.refusal is not None:
            reason = "MakingWay" if older else "PortsUnavailable"
            report = replace(report, ports=Ports(reason, planned.refusal.message))
        workloads = ((key, manifest) for key, manifest in world.owned.items() if key.kind in WORKLOADS)
        way = tuple(key for key, manifest in workloads if holder_of(manifest) in older)
        return Decision(None, surviving(world, kept), report, settled, make_way=way)
    manifests = wished(planned.plan, planned.revision, planned.pools, uid=body["metadata"].get("uid", ""))
    return Decision(
        wished=tuple(manifests),
        wanted=wanted_engines(planned.plan, manifests),
        report=replace(
            report,
            findings=still_true(planned),
            revision=planned.revision.hash,
            update_available=planned.fresh.hash if planned.fresh.hash != planned.revision.hash else "",
            model=planned.plan.roles[0].served_name,
            rules_version=planned.plan.resolved.release.name,
            estimate=estimate(planned.plan),
            ports=ports_of(planned.plan, settled),
        ),
        settled=settled,
        starting=starting(settled, world),
    )


def starting(settled: Settled | None, world: World) -> tuple[Claim, ...]:
    """Claims of engines that nothing shows yet: what is wished will start them."""
    there = {sign.holder for sign in world.signs}
    return tuple(claim for claim in settled.claims if claim.holder not in there) if settled else ()


def still_true(planned: Planned) -> tuple[Finding, ...]:
    """Findings without the cost of a change that is over: no older pool is remembered any more, and what is left goes now."""
    pools = planned.pools
    is_over = pools is not None and not pools.remembered and len(pools.applied) <= 1
    found = planned.judgement.findings
    return tuple(finding for finding in found if not (is_over and finding.rule == COLD_POOL))


def ports_of(plan: Plan, settled: Settled | None) -> Ports:
    if settled is None or not plan.resolved.spec.networking.host_network:
        return Ports("PodNetwork")
    claims = set(settled.claims)
    clashes = [pair for pair in settled.ledger.conflicts() if not claims.isdisjoint(pair)]
    if clashes:
        return Ports("PortConflict", "; ".join(f"{left} and {right} overlap" for left, right in clashes))
    stay = ", ".join(f"{one.holder.role} engine {one.holder.engine} at {one.block}" for one in settled.unmoved)
    return Ports("Claimed", f"A pin moves engines with their next revision; until then: {stay}." if stay else "")


def engines_in_the_way(refusal: Refusal | NoRoom | None) -> frozenset[Holder]:
    """Engines of older revisions of our own, if they are the only trouble: a pinned role can't surge, so they stop first."""
    problems = refusal.problems if isinstance(refusal, Refusal) else ()
    taken = [problem for problem in problems if isinstance(problem, Taken)]
    own = [
        problem.other.holder
        for problem in taken
        if problem.other.holder.owner == problem.holder.owner
        and problem.other.holder.revision != problem.holder.revision
    ]
    return frozenset(own) if len(own) == len(problems) else frozenset()


def wanted_engines(plan: Plan, manifests: list[Manifest]) -> tuple[WantedEngine, ...]:
    """Engines in the plan's order with their workloads; `manifests` are sorted otherwise."""
    engines = (manifest for manifest in manifests if manifest["kind"] in WORKLOADS and is_engine(manifest))
    workloads = {identity(manifest): manifest for manifest in engines}
    return tuple(
        WantedEngine(workloads[engine.role, str(engine.index)], *ends(engine.ports.kv)) for engine in plan.engines
    )


def ends(block: PortRange | None) -> tuple[int | None, int | None]:
    return (block.first, block.last) if block else (None, None)


def is_engine(workload: Manifest) -> bool:
    """Router and pool have workloads too."""
    labels: dict[str, str] = workload["metadata"].get("labels", {})
    return {names.ROLE, names.ENGINE, names.REVISION} <= labels.keys()


def identity(workload: Manifest) -> tuple[str, str]:
    labels = workload["metadata"]["labels"]
    return labels[names.ROLE], labels[names.ENGINE]


def surviving(world: World, kept: Revision | None) -> tuple[WantedEngine, ...]:
    """Engines that run although the present spec is refused or suspended."""
    if kept is None:
        return ()
    order = {role: number for number, role in enumerate(ROLES)}
    labelled = [one for key, one in world.owned.items() if key.kind in WORKLOADS and is_engine(one)]
    labelled.sort(
        key=lambda m: (order.get(m["metadata"]["labels"][names.ROLE], 9), int(m["metadata"]["labels"][names.ENGINE]))
    )
    return tuple(WantedEngine(manifest, *ends(kv_block(manifest))) for manifest in labelled)


def first_report(body: Mapping[str, Any], judgement: Judgement, kept: Revision | None) -> Report:
    spec = body.get("spec")
    roles = spec if isinstance(spec, dict) else {}
    return Report(
        generation=body["metadata"].get("generation", 0),
        findings=judgement.findings,
        wanted=wanted_counts(judgement, roles),
        revision=kept.hash if kept else "",
        suspended=judgement.deployment is not None and judgement.deployment.spec.suspend,
    )


def wanted_counts(judgement: Judgement, roles: Mapping[str, Any]) -> dict[str, int]:
    if judgement.deployment is not None:
        return {name: role.replicas for name, role in judgement.deployment.spec.roles().items()}
    return {name: 0 for name in ROLES if isinstance(roles.get(name), dict)}


def estimate(plan: Plan) -> dict[str, str]:
    """What KVPP should gain on the role that has it; nothing where the model's caches are unknown."""
    for role in plan.resolved.kvpp_roles:
        if (found := capacity.estimate(plan.resolved, role)) is not None:
            return {"multiplier": f"{found.multiplier:.2f}", "method": found.method}
    return {}
