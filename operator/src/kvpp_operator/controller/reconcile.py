"""One deployment, from what is known of it to what should be: gather, decide, apply, report.

Level-triggered and idempotent: it may be called at any time, killed between any two writes, and called again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvpp_operator.cluster.apply import Applied, apply, apply_status
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.decide import Decision, decide
from kvpp_operator.manifest import Owner, controller_of, key_of
from kvpp_operator.report.engines import engine_states
from kvpp_operator.report.status import Outcome, Report, status
from kvpp_operator.world import World

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.configuration import Configuration
    from kvpp_operator.manifest import DeploymentKey, Manifest

RETRY_SECONDS = 10.0
"""After a refusal: a quota may be raised or an object deleted without an event that reaches us."""

Announce = Callable[["Cluster", "Manifest", dict[str, Any]], Any]
"""(cluster, deployment as it was, new status) → events for what changed."""


class Reconciler:
    """What the queue calls for each key."""

    def __init__(self, configuration: Configuration, clock: Callable[[], str], announce: Announce) -> None:
        self.configuration = configuration
        self.clock = clock
        self.announce = announce

    async def __call__(self, key: DeploymentKey, cache: Cache, cluster: Cluster) -> float | None:
        """Seconds until the next look, or None when only an event can change anything."""
        body = cache.deployment(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None  # owner references let the garbage collector do the rest
        owner = Owner.of(body)
        decision = decide(body, gather(cache, owner), self.configuration)
        problem: ClusterError | None = None
        outcome = Outcome()
        if decision.wished is not None:
            try:
                outcome = outcome_of(await apply(cluster, cache, owner, decision.wished))
            except ClusterError as error:
                problem, outcome = error, Outcome("Retrying", str(error))
        wanted = status(finished(decision, outcome, cache, owner), body.get("status") or {}, self.clock())
        if await apply_status(cluster, cache, body, wanted):
            await self.announce(cluster, body, wanted)
        if problem is not None:
            raise problem  # the queue comes back with growing delays
        return None if outcome.reason == "Applied" else RETRY_SECONDS


def gather(cache: Cache, owner: Owner) -> World:
    """The frozen facts that deciding may use."""
    owned = {key_of(manifest): manifest for manifest in cache.owned(owner.key) if is_ours(manifest, owner)}
    return World(owned=owned, pods=cache.pods(owner.key))


def is_ours(manifest: Manifest, owner: Owner) -> bool:
    controller = controller_of(manifest)
    return controller is not None and controller.get("uid") == owner.uid


def finished(decision: Decision, outcome: Outcome, cache: Cache, owner: Owner) -> Report:
    """The report, after a look at what applying left behind."""
    world = gather(cache, owner)
    engines = tuple(engine_states(decision.wanted, world.owned.values(), world.pods))
    return replace(decision.report, outcome=outcome, engines=engines)


def outcome_of(applied: Applied) -> Outcome:
    if applied.foreign:
        named = ", ".join(str(key) for key in applied.foreign)
        return Outcome("ForeignObject", f"{named} exists and is controlled by somebody else; it was left alone.")
    refusals = [failure for failure in applied.failed if not failure.transient]
    if refusals:
        return Outcome("Refused", "; ".join(f"{failure.key}: {failure.message}" for failure in refusals))
    if applied.failed:
        return Outcome("Retrying", "; ".join(f"{failure.key}: {failure.message}" for failure in applied.failed))
    if applied.waiting:
        named = ", ".join(str(key) for key in applied.waiting)
        return Outcome("Retrying", f"{named} is still being deleted.")
    return Outcome()
