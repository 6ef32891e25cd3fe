"""Make the cluster hold what we wish: apply what differs, in order, then delete what we own and no longer wish.

Nothing is written that is as we wished; nothing is touched that somebody else controls.
"""

from __future__ import annotations

from http import HTTPStatus
from itertools import groupby
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.cluster.client import Conflict
from kvpp_operator.cluster.outcome import Applied, Outcome, Verdict, guarded, summary, together
from kvpp_operator.cluster.repair import REPAIRABLE, repair
from kvpp_operator.cluster.satisfied import satisfied
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import (
    KIND,
    KIND_OF,
    KINDS,
    Key,
    Manifest,
    Owner,
    apply_order,
    controller_of,
    key_of,
    wish_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster


DELETE_ATTEMPTS = 3


async def apply(
    cluster: Cluster, cache: Cache, owner: Owner, wished: Iterable[Manifest], *, prune: bool = True
) -> Applied:
    """Apply stamped manifests, then delete whatever else `owner` controls, if all that is wished is in place.

    One object's failure stops no other.  What is in the way is named, and keeps the old objects running.
    Raises `ClusterError` only if the API server cannot be reached: that is no object's fault.
    """
    ordered = sorted(wished, key=apply_order)
    outcomes: list[Outcome] = []
    for _, rank in groupby(ordered, key=lambda manifest: apply_order(manifest)[0]):
        outcomes += await _apply_rank(cluster, cache, owner, list(rank))
    applied = summary(outcomes)
    if not (prune and applied.is_complete):
        return applied
    return summary([*outcomes, *await _prune(cluster, cache, owner, {key_of(wish) for wish in ordered})])


async def prune(cluster: Cluster, cache: Cache, owner: Owner, keep: Iterable[Key]) -> Applied:
    """Delete everything that `owner` controls, but for the keys given."""
    return summary(await _prune(cluster, cache, owner, set(keep)))


async def apply_status(cluster: Cluster, cache: Cache, body: Manifest, status: Manifest) -> bool:
    """Write a deployment's status if it differs from the one in `body`.

    `False` if the deployment has changed since `body` was read: an event is on its way, and the next look decides.
    """
    if (body.get("status") or {}) == status:
        return True
    written = await cluster.apply_status(body, status)
    if isinstance(written, Conflict):
        return False
    cache.put(written)
    return True


async def _apply_rank(cluster: Cluster, cache: Cache, owner: Owner, rank: list[Manifest]) -> list[Outcome]:
    """Apply objects that wait for no other of these.  What the cache answers takes no turn of the event loop: a look that
    finds nothing to do is over at once, however many others are under way.
    """
    answers = {key_of(wish): _answer(cache.get(key_of(wish)), owner, wish) for wish in rank}
    asked = (wish for wish in rank if answers[key_of(wish)] is None)
    outcomes = [Outcome(answer, key) for key, answer in answers.items() if answer is not None]
    return outcomes + await together(guarded(key_of(wish), _apply(cluster, cache, owner, wish)) for wish in asked)


def _answer(live: Manifest | None, owner: Owner, wish: Manifest) -> Verdict | None:
    """What needs no write, as far as `live` tells; `None` if one is due."""
    if live is None:
        return None
    as_wished = wish_of(live) == wish_of(wish) and satisfied(wish, live)
    return _standing(live, owner) or (Verdict.UNCHANGED if as_wished else None)


async def _apply(cluster: Cluster, cache: Cache, owner: Owner, wish: Manifest) -> Outcome:
    key = key_of(wish)
    live = cache.get(key)
    if live is None:  # unknown: absent, or without our label, or younger than the last event
        live = await cluster.get(key)
        if live is None:
            return await _create(cluster, cache, wish)
    answer = _answer(live, owner, wish)
    if answer is Verdict.UNCHANGED:
        cache.put(live)
    if answer is not None:
        return Outcome(answer, key)
    try:
        cache.put(await _update(cluster, wish, live))
    except ClusterError as error:
        if error.status == HTTPStatus.CONFLICT or "metadata.uid" in error.fields:
            return Outcome(Verdict.WAITING, key)
        raise
    return Outcome(Verdict.APPLIED, key)


async def _update(cluster: Cluster, wish: Manifest, live: Manifest) -> Manifest:
    """Apply over an object of ours.  With its uid, the server refuses if another one has taken the name since."""
    precise = {**wish, "metadata": {**wish["metadata"], "uid": live["metadata"]["uid"]}}
    try:
        return await cluster.apply(precise)
    except ClusterError as error:
        if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or "metadata.uid" in error.fields:
            raise
        if wish["kind"] not in REPAIRABLE:
            raise
        return await repair(cluster, precise, live)


async def _create(cluster: Cluster, cache: Cache, wish: Manifest) -> Outcome:
    """Create by apply, without force: should somebody have been faster, their fields refuse ours."""
    try:
        cache.put(await cluster.apply(wish, force=False))
    except ClusterError as error:
        if error.status == HTTPStatus.CONFLICT:
            return Outcome(Verdict.FOREIGN, key_of(wish))
        raise
    return Outcome(Verdict.APPLIED, key_of(wish))


async def _prune(cluster: Cluster, cache: Cache, owner: Owner, keep: set[Key]) -> list[Outcome]:
    surplus = [
        live
        for live in cache.owned(owner.key)
        if key_of(live) not in keep
        and KIND_OF[live["apiVersion"], live["kind"]] in KINDS
        and _standing(live, owner) is None
    ]
    surplus.sort(key=apply_order, reverse=True)
    outcomes: list[Outcome] = []
    for _, rank in groupby(surplus, key=lambda manifest: apply_order(manifest)[0]):
        outcomes += await together(guarded(key_of(live), _delete(cluster, cache, owner, live)) for live in rank)
        if any(outcome.verdict is not Verdict.PRUNED for outcome in outcomes):
            break  # a workload that stays keeps what its pods refer to
    return outcomes


async def _delete(cluster: Cluster, cache: Cache, owner: Owner, seen: Manifest) -> Outcome:
    """Delete an object as it was seen to be ours; look again if it has changed, which a status does all the time."""
    live: Manifest | None = seen
    for _ in range(DELETE_ATTEMPTS):
        if live is None:
            break
        if _standing(live, owner) is not None:
            return Outcome(Verdict.WAITING, key_of(seen))
        meta = live["metadata"]
        refused = await cluster.delete(key_of(live), uid=meta["uid"], resource_version=meta["resourceVersion"])
        if refused is None:
            break
        live = await cluster.get(key_of(seen))
    else:
        return Outcome(Verdict.WAITING, key_of(seen))
    meta = (live or seen)["metadata"]
    cache.drop(key_of(seen), uid=meta["uid"], resource_version=meta["resourceVersion"])
    return Outcome(Verdict.PRUNED, key_of(seen))


def _standing(live: Manifest, owner: Owner) -> Verdict | None:
    """Tell why an object may not be touched; `None` if it is ours to change."""
    controller = controller_of(live)
    if controller is None or controller["kind"] != KIND or not controller["apiVersion"].startswith(f"{names.DOMAIN}/"):
        return Verdict.FOREIGN
    if controller["uid"] != owner.uid:
        return Verdict.WAITING if controller["name"] == owner.key.name else Verdict.FOREIGN
    return Verdict.WAITING if live["metadata"].get("deletionTimestamp") else None
