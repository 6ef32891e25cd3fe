"""Deciding with ports: the decision, and the port ledger as it needs it, before anything is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvpp_operator import names
from kvpp_operator.cluster.ledger import KEY, WORKLOADS, LedgerKeeper
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.controller.gather import gather
from kvpp_operator.decide import Decision, decide
from kvpp_operator.ledger.claim import Holder, Ledger
from kvpp_operator.ledger.live import holder_of
from kvpp_operator.ledger.settle import release
from kvpp_operator.ledger.wire import parse
from kvpp_operator.manifest import PODS, Owner

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.configuration import Configuration
    from kvpp_operator.manifest import DeploymentKey

RETRY_SECONDS = 5.0


class Claims:
    """One per process: it has the only keeper of the ledger."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._keeper: LedgerKeeper | None = None
        self._known: tuple[str, Ledger] = ("", Ledger())

    def keeper(self, cluster: Cluster) -> LedgerKeeper:
        if self._keeper is None:
            self._keeper = LedgerKeeper(cluster)
        return self._keeper

    async def decide(self, body: Mapping[str, Any], cache: Cache, cluster: Cluster) -> Decision:
        """What should be; every claim that it rests on stands in the cluster's ledger when this returns."""
        world = gather(cache, Owner.of(dict(body)))
        ledger = self.known(cache)
        decision = decide(body, replace(world, ledger=ledger), self._configuration)
        if is_settled(decision, ledger) and (decision.settled is None or not decision.settled.claims or cache.get(KEY)):
            return decision

        async def turn(stored: Ledger) -> tuple[Ledger, Decision]:
            made = decide(body, replace(world, ledger=stored), self._configuration)
            if made.settled is not None and made.settled.freed:
                # Freeing rests on a look that is younger than the ledger: a pod may have started since the cache's last event.
                seen = replace(world, holders=world.holders | await holders_now(cluster, Owner.of(dict(body)).key))
                made = decide(body, replace(seen, ledger=stored), self._configuration)
            return (stored if made.settled is None else made.settled.ledger), made

        answer: Decision = await self.keeper(cluster).take(turn)
        return answer

    def known(self, cache: Cache) -> Ledger:
        """The ledger as the watch last told it; parsed once per version."""
        entry = cache.entry(KEY)
        if entry is None:
            return Ledger()
        if self._known[0] != entry.resource_version:
            self._known = (entry.resource_version, parse(entry.manifest.get("spec")).ledger)
        return self._known[1]

    def waits(self, decision: Decision) -> bool:
        """Whether claims of an older revision are kept until its pods are gone: then another look is due."""
        if decision.settled is None:
            return False
        wanted = {claim.holder for claim in decision.settled.claims}
        owners = {holder.owner for holder in wanted}
        return any(claim.holder.owner in owners and claim.holder not in wanted for claim in decision.settled.ledger)

    async def free(self, key: DeploymentKey, cache: Cache, cluster: Cluster) -> float | None:
        """Free the claims of a deployment that is gone, once no pod of it is left. Seconds until the next look."""
        if not any(belongs(claim.holder, key) for claim in self.known(cache)):
            return None

        async def turn(stored: Ledger) -> tuple[Ledger, bool]:
            holders = await holders_now(cluster, key)
            owners = {claim.holder.owner for claim in stored if belongs(claim.holder, key)}
            return release(stored, holders, owners), bool(holders)

        waits = await self.keeper(cluster).take(turn)
        return RETRY_SECONDS if waits else None


def belongs(holder: Holder, key: DeploymentKey) -> bool:
    return (holder.owner.namespace, holder.owner.name) == (key.namespace, key.name)


def is_settled(decision: Decision, ledger: Ledger) -> bool:
    return decision.settled is None or decision.settled.ledger == ledger


async def holders_now(cluster: Cluster, key: DeploymentKey) -> frozenset[Holder]:
    """Engines of a deployment that workloads or pods still show, as the API server says now."""
    found: set[Holder] = set()
    for kind in (*WORKLOADS, PODS):
        try:
            async for item in cluster.list(
                kind, namespace=key.namespace, labels=f"{names.DEPLOYMENT}={key.name}", metadata_only=True
            ):
                if (holder := holder_of(item)) is not None:
                    found.add(holder)
        except ClusterError as problem:
            if problem.status != 404:  # noqa: PLR2004 - an optional API that is absent holds nothing
                raise
    return frozenset(found)
