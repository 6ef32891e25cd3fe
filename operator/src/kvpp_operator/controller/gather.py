"""Cache → World: every read that deciding depends on, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpp_operator.ledger.live import live_claims, signs
from kvpp_operator.manifest import Owner, controller_of, key_of
from kvpp_operator.world import World

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.manifest import Manifest


def gather(cache: Cache, owner: Owner) -> World:
    """What is known of a deployment: its objects, its engines' pods, and what both show of ports."""
    owned = {key_of(manifest): manifest for manifest in cache.owned(owner.key) if is_ours(manifest, owner)}
    pods = cache.pods(owner.key)
    return World(owned=owned, pods=pods, live_claims=live_claims(owned.values()), signs=signs((*owned.values(), *pods)))


def is_ours(manifest: Manifest, owner: Owner) -> bool:
    controller = controller_of(manifest)
    return controller is not None and controller.get("uid") == owner.uid
