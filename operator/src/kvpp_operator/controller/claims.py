"""Deciding with ports: the decision, and the port ledger as it needs it, before anything is applied."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from kvpp_operator.cluster.ledger import KEY, LedgerKeeper, Look, NeedsLook, shown
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.controller.gather import gather
from kvpp_operator.decide import Decision, conclude, draft_of, starting
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.ledger.live import holders, signs
from kvpp_operator.ledger.settle import release
from kvpp_operator.ledger.wire import parse
from kvpp_operator.manifest import API_VERSION, KIND, Key, Owner
from kvpp_operator.pipeline import settle_ports
from kvpp_operator.report.status import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.configuration import Configuration
    from kvpp_operator.ledger.claim import Claim, Holder
    from kvpp_operator.ledger.live import Sign
    from kvpp_operator.ledger.settle import Settled
    from kvpp_operator.manifest import DeploymentKey, Manifest
    from kvpp_operator.pipeline import Planned
    from kvpp_operator.world import World


class Claims:
    """One per process: it has the only keeper of the ledger."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._keeper: LedgerKeeper | None = None
        self._known: tuple[str, Ledger] = ("", Ledger())

    async def decide(self, body: Manifest, cache: Cache, cluster: Cluster) -> Decision:
        """What should be; every claim that it rests on stands in the cluster's ledger when this returns.

        Raises `ClusterError` when the API server is at a loss for a moment; a lasting one stands in the report.
        """
        world = gather(cache, Owner.of(body))
        drafted = draft_of(body, world, self._configuration)
        known = self.known(cache)
        settled = settle_ports(drafted, replace(world, ledger=known))
        # Before an engine is started, the ledger itself is asked, not the watch.
        if settled is None or (settled.ledger == known and not starting(settled, world)):
            return conclude(body, world, drafted, settled)
        try:
            settled = await self.keeper(cluster, cache).take(Asking(body, world, drafted, cluster))
        except ClusterError as problem:
            if problem.transient or problem.status == HTTPStatus.CONFLICT:
                raise
            decision = conclude(body, world, drafted, None)
            ports = Outcome("PortsUnavailable", f"The port ledger can't be read or written: {problem}")
            return replace(decision, report=replace(decision.report, ports=ports))
        return conclude(body, world, drafted, settled)

    def keeper(self, cluster: Cluster, cache: Cache) -> LedgerKeeper:
        if self._keeper is None:
            self._keeper = LedgerKeeper(cluster, cache)
        return self._keeper

    def known(self, cache: Cache) -> Ledger:
        """The ledger as the watch last told it; parsed once per version."""
        entry = cache.entry(KEY)
        if entry is None:
            return Ledger()
        if self._known[0] != entry.resource_version:
            self._known = (entry.resource_version, parse(entry.manifest.get("spec")).ledger)
        return self._known[1]

    async def free(self, key: DeploymentKey, cache: Cache, cluster: Cluster) -> None:
        """Free the claims of a deployment that is gone, as far as no pod of it is left; the last one's end is an event."""
        if not any(is_of(claim.holder, key) for claim in self.known(cache)):
            return

        await self.keeper(cluster, cache).take(Freeing(key, cluster))


class Asking:
    """A deployment's turn on the ledger."""

    def __init__(self, body: Manifest, world: World, drafted: Planned, cluster: Cluster) -> None:
        self._body = body
        self._world = world
        self._drafted = drafted
        self._cluster = cluster
        self._signs: frozenset[Sign] | None = None

    async def prepare(self, ledger: Ledger, look: Look) -> None:
        """Before a claim is freed: who is there, and is the spec still the same? Both younger than the ledger.

        Else the claims of a newer spec, written by another operator a moment ago, would look like nobody's.
        """
        self._signs = None
        _, settled = self.take(ledger, look)
        if settled.changes and look is None:
            raise NeedsLook  # what it shows may have been given to others that run
        if not settled.freed:
            return
        key = Owner.of(self._body).key
        _, found = await asyncio.gather(unchanged(self._cluster, self._body), shown(self._cluster, key))
        self._signs = self._world.signs | signs(found)

    def take(self, ledger: Ledger, look: Look) -> tuple[Ledger, Settled]:
        live = self._world.live_claims if look is None else look
        found = self._world.signs if self._signs is None else self._signs
        settled = settle_ports(self._drafted, replace(self._world, ledger=ledger, live_claims=live, signs=found))
        assert settled is not None
        return settled.ledger, settled


class Freeing:
    """The turn of a deployment that is gone: its claims go, as far as nothing of it is left."""

    def __init__(self, key: DeploymentKey, cluster: Cluster) -> None:
        self._key = key
        self._cluster = cluster

    async def prepare(self, _: Ledger, __: Look) -> None:
        self._successor, found = await asyncio.gather(
            deployment_now(self._cluster, self._key), shown(self._cluster, self._key)
        )
        self._signs = signs(found)

    def take(self, ledger: Ledger, _: Look) -> tuple[Ledger, None]:
        owners = {claim.holder.owner for claim in ledger if is_of(claim.holder, self._key)}
        lives = self._successor["metadata"]["uid"] if self._successor else None
        gone = {owner for owner in owners if owner.uid != lives}
        return release(ledger, holders(self._signs, ledger), gone), None


async def last_look(cluster: Cluster, body: Manifest, claims: Sequence[Claim]) -> None:
    """Make sure, before engines are started on hosts' ports, that their claims and the spec they are from still stand.

    Another operator frees what a newer spec does not want, and a hand may have been in the ledger, while the API server
    was asked what it would say to a new revision. Raises `ClusterError`: the queue decides anew.
    """
    if not claims:
        return
    _, found = await asyncio.gather(unchanged(cluster, body), cluster.get(KEY))
    if not parse((found or {}).get("spec")).ledger.holds(claims):
        raise ClusterError(HTTPStatus.CONFLICT, "Conflict", f"{KEY} no longer has the claims of engines to be started")


async def unchanged(cluster: Cluster, body: Manifest) -> None:
    """Raise `ClusterError` if the deployment is not what was decided on any more."""
    key = Owner.of(body).key
    now = await deployment_now(cluster, key)
    if now is None or any(now["metadata"][name] != body["metadata"][name] for name in ("uid", "generation")):
        raise ClusterError(HTTPStatus.CONFLICT, "Conflict", f"{key} has changed meanwhile")


def is_of(holder: Holder, key: DeploymentKey) -> bool:
    return (holder.owner.namespace, holder.owner.name) == (key.namespace, key.name)


async def deployment_now(cluster: Cluster, key: DeploymentKey) -> Manifest | None:
    """The deployment as the API server has it; None when it is gone or going."""
    found = await cluster.get(Key(API_VERSION, KIND, key.namespace, key.name))
    return None if found is None or found["metadata"].get("deletionTimestamp") else found
