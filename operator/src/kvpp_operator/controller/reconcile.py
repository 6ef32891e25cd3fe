"""One deployment, from what is known of it to what should be: gather, decide, claim, apply, report.

Level-triggered and idempotent: it may be called at any time, killed between any two writes, and called again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvpp_operator.cluster.apply import apply, apply_status, prune
from kvpp_operator.cluster.outcome import Applied
from kvpp_operator.cluster.rehearse import is_new_revision, rehearse
from kvpp_operator.cluster.transport import NO_SUCH_API, ClusterError
from kvpp_operator.controller.claims import Claims, last_look
from kvpp_operator.controller.engines import explain, release
from kvpp_operator.controller.gather import gather
from kvpp_operator.controller.routers import tidy
from kvpp_operator.decide import COLD_POOL, Decision, surviving
from kvpp_operator.manifest import Owner, key_of, kind_of
from kvpp_operator.pipeline import stored_revisions
from kvpp_operator.report.apis import missing
from kvpp_operator.report.engines import engine_states, unexplained, waits_long
from kvpp_operator.report.pool import pool_states
from kvpp_operator.report.router import router_state, router_workload
from kvpp_operator.report.status import Outcome, Report, shown_findings, status
from kvpp_operator.revision import newest

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.configuration import Configuration
    from kvpp_operator.manifest import DeploymentKey, Manifest

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""After a refusal: a quota may be raised, an object deleted or a port freed without an event that reaches us."""

Announce = Callable[["Cluster", "Manifest", dict[str, Any]], Any]
"""(cluster, deployment as it was, new status) → events for what changed."""


class Reconciler:
    """What the queue calls for each key."""

    def __init__(self, configuration: Configuration, clock: Callable[[], str], announce: Announce) -> None:
        self.clock = clock
        self.announce = announce
        self.claims = Claims(configuration)

    async def __call__(self, key: DeploymentKey, cache: Cache, cluster: Cluster) -> float | None:
        """Seconds until the next look, or None when only an event can change anything."""
        body = cache.deployment(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            # Owner references let the garbage collector do the rest; only claims of ports are ours to free.
            await self.claims.free(key, cache, cluster)
            return None
        if cache.is_leaving(key.namespace):
            await stop(cluster, cache, Owner.of(body))
            return None
        decision = await self.claims.decide(body, cache, cluster)
        body = await warn_first(decision, cluster, cache, body)
        problem: ClusterError | None = None
        outcome = Outcome()
        try:
            outcome = await carry_out(decision, cluster, cache, body)
        except ClusterError as error:
            problem, outcome = error, Outcome("Retrying", str(error))
        report = await finished(decision, outcome, cluster, cache, body)
        wanted = status(report, body.get("status") or {}, self.clock())
        if await apply_status(cluster, cache, body, wanted):
            await self.announce(cluster, body, wanted)
        if report.router is not None:
            await tidy(cluster, cache, key)
        if problem is not None:
            raise problem  # the queue comes back with growing delays
        return sooner(
            None if report.suspended else await release(cluster, cache.pods(key), self.clock()),
            RETRY_SECONDS if outcome.reason != "Applied" or report.ports.reason == "PortsUnavailable" else None,
            RETRY_SECONDS if unexplained(report.engines) else None,
        )


async def stop(cluster: Cluster, cache: Cache, owner: Owner) -> None:
    """End what runs in a namespace that goes, ahead of Kubernetes.

    The namespace controller deletes pods 5 s later, looks again after another 5 s, and if one is left then, only after half
    of its grace period (pkg/controller/namespace; from Kubernetes 1.33 on it deletes pods before all else). An idle engine
    that is told at once has ended by then. The rest is Kubernetes' to delete: nothing new can be made here any more.
    """
    owned = [key_of(manifest) for manifest in cache.owned(owner.key)]
    workloads = [key for key in owned if kind_of(key).is_workload]
    if workloads:
        logger.info("namespace is being deleted", extra={"deployment": str(owner.key), "stopped": len(workloads)})
        await prune(cluster, cache, owner, set(owned) - set(workloads))


async def warn_first(decision: Decision, cluster: Cluster, cache: Cache, body: Manifest) -> Manifest:
    """Say what a rollout costs before it begins; give the deployment as it is then.

    Only the findings are written: the rest of the status tells of the generation that still runs.
    """
    before = body.get("status") or {}
    known = [finding.get("rule") for finding in before.get("findings") or ()]
    if decision.wished is None or COLD_POOL not in (f.rule for f in decision.report.findings) or COLD_POOL in known:
        return body
    await apply_status(cluster, cache, body, {**before, "findings": shown_findings(decision.report)})
    return cache.deployment(Owner.of(body).key) or body


def sooner(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)


async def carry_out(decision: Decision, cluster: Cluster, cache: Cache, body: Manifest) -> Outcome:
    """Apply what is wished; or make way for it; or, for a refused spec, leave everything as it is."""
    owner = Owner.of(body)
    if decision.wished is not None:
        if is_new_revision(cache, decision.wished):
            try:
                refused = await rehearse(cluster, cache, decision.wished)
            except ClusterError as error:
                return Outcome("Retrying", str(error), kept_old=True)
            if refused:
                return replace(outcome_of(Applied(failed=refused)), kept_old=True)
        await last_look(cluster, body, decision.starting)
        return outcome_of(await apply(cluster, cache, owner, decision.wished))
    if decision.make_way:
        keep = [key_of(manifest) for manifest in cache.owned(owner.key)]
        await prune(cluster, cache, owner, [key for key in keep if key not in decision.make_way])
    return Outcome()


async def finished(decision: Decision, outcome: Outcome, cluster: Cluster, cache: Cache, body: Manifest) -> Report:
    """The report, after a look at what applying left behind."""
    world = gather(cache, Owner.of(body))
    report, wanted = replace(decision.report, outcome=outcome), decision.wanted
    if outcome.kept_old:
        kept = newest(stored_revisions(world))
        wanted = surviving(world, kept)
        report = replace(report, revision=kept.hash if kept else "")
    is_as_it_was = decision.wished is None or outcome.kept_old
    objects = tuple(world.owned.values() if is_as_it_was else decision.wished or ())
    routing = router_workload(objects)
    router = router_state(routing, world.owned, world.pods) if routing else None
    before = (body.get("status") or {}).get("engines") or []
    states = tuple(engine_states(wanted, world.owned.values(), world.pods, before=before))
    if waiting := waits_long(states, before):
        told = await explain(cluster, waiting, wanted, world.pods)
        states = tuple(engine_states(wanted, world.owned.values(), world.pods, told=told, before=before))
    return replace(report, engines=states, router=router, pools=pool_states(objects, world.owned, world.pods))


def outcome_of(applied: Applied) -> Outcome:
    if applied.foreign:
        named = ", ".join(str(key) for key in applied.foreign)
        return Outcome("ForeignObject", f"{named} exists and is controlled by somebody else; it was left alone.")
    absent = [failure.key.kind for failure in applied.failed if failure.reason == NO_SUCH_API]
    if absent:
        return Outcome("MissingApi", missing(absent))
    refusals = [failure for failure in applied.failed if not failure.transient]
    if refusals:
        return Outcome("Refused", "; ".join(f"{failure.key}: {failure.message}" for failure in refusals))
    if applied.failed:
        return Outcome("Retrying", "; ".join(f"{failure.key}: {failure.message}" for failure in applied.failed))
    if applied.waiting:
        named = ", ".join(str(key) for key in applied.waiting)
        return Outcome("Retrying", f"{named} is still being deleted.")
    return Outcome()
