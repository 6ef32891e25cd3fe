"""Whom a change of the port ledger concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpp_operator.cluster.ledger import KEY
from kvpp_operator.ledger.wire import parse
from kvpp_operator.manifest import API_VERSION, KIND, DeploymentKey, Key
from kvpp_operator.report.reasons import PORTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kvpp_operator.cluster.cache import Cache, Entry
    from kvpp_operator.ledger.claim import Claim

LACKS_PORTS = (PORTS, "False")


def concerned(before: Entry | None, now: Entry | None, cache: Cache, namespaces: Collection[str]) -> set[DeploymentKey]:
    """Those whose claims came or went, by a hand perhaps; and where ports were freed, those who wait for some.

    `namespaces`: which we serve, none for all; what others hold is theirs to look after.
    """
    old, new = _claims(before), _claims(now)
    waiting = {key for key in cache.deployments() if _lacks_ports(cache, key)} if old - new else set()
    return _owners(old ^ new, namespaces) | waiting


def claimants(cache: Cache, namespaces: Collection[str]) -> set[DeploymentKey]:
    """Who holds ports: also deployments that were deleted while nobody looked, whose claims are to be freed."""
    return _owners(_claims(cache.entry(KEY)), namespaces)


def _claims(ledger: Entry | None) -> set[Claim]:
    return set(parse(ledger.manifest.get("spec")).ledger) if ledger else set()


def _owners(claims: Iterable[Claim], namespaces: Collection[str]) -> set[DeploymentKey]:
    found = {DeploymentKey(claim.holder.owner.namespace, claim.holder.owner.name) for claim in claims}
    return {key for key in found if not namespaces or key.namespace in namespaces}


def _lacks_ports(cache: Cache, key: DeploymentKey) -> bool:
    entry = cache.entry(Key(API_VERSION, KIND, key.namespace, key.name))
    return entry is not None and LACKS_PORTS in entry.conditions
