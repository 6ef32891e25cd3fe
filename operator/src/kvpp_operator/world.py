"""Frozen facts that were read: what the rules and the planner may know beside the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvpp_operator.ledger.claim import Claim, Ledger
from kvpp_operator.ledger.live import Sign
from kvpp_operator.manifest import Key, Manifest

EMPTY = Ledger()


@dataclass(frozen=True)
class World:
    """An empty one is the offline world of the command line: nothing runs, no port is claimed."""

    owned: Mapping[Key, Manifest] = field(default_factory=dict)
    """Live objects that this deployment controls."""
    pods: tuple[Manifest, ...] = ()
    """Live pods of its engines, in reduced form."""
    ledger: Ledger = EMPTY
    """The cluster's port claims."""
    live_claims: tuple[Claim, ...] = ()
    """What live engines show of the ports they use: this deployment's, or everybody's where the whole cluster was read."""
    signs: frozenset[Sign] = frozenset()
    """Engines of this deployment whose workload or pods are still there; their claims are kept."""
    uid: str = ""
    """Of the live deployment; "" offline."""


OFFLINE = World()
