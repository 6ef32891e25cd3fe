"""One turn of a writer on the ledger, without the reading and the writing: heal, release, allocate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvpp_operator.ledger.allocate import Allocation, Request, allocate
from kvpp_operator.ledger.claim import Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.live import with_uids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kvpp_operator.ledger.pins import PinVerdict
    from kvpp_operator.ledger.refusal import Refusal
    from kvpp_operator.ports import Reserved

Healing = Literal["restored", "corrected", "dropped", "conflict"]


@dataclass(frozen=True, slots=True)
class Change:
    """How `rebuild` healed the ledger. `other`: what stood there before, or the claim that won."""

    healing: Healing
    claim: Claim
    other: Claim | None = None

    @property
    def message(self) -> str:
        text = {
            "restored": "the ledger had lost {claim}, which runs: restored",
            "corrected": "the ledger said {other}, but {claim} runs: corrected",
            "dropped": "the ledger gave {claim} ports of {other}: dropped, for it does not run",
            "conflict": "{claim} and {other} both run: neither is moved; delete one of the two engines",
        }[self.healing]
        return text.format(claim=self.claim, other=self.other)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    ledger: Ledger
    changes: tuple[Change, ...] = ()


def rebuild(ledger: Ledger, live: Iterable[Claim]) -> Rebuilt:
    """Make the ledger say what runs; whatever stands in its way and does not run is dropped. Nothing that runs moves.

    `live` is all of the cluster's (`live.live_claims`). The result overlaps only where running engines do.
    """
    live = tuple(live)
    running = Ledger(with_uids(live, (*ledger, *live)))
    keys = {claim.key for claim in running}
    stored = {claim.key: claim for claim in reversed(ledger.claims)}
    exact = set(ledger.claims)
    changes = [
        Change("corrected" if claim.key in stored else "restored", claim, stored.get(claim.key))
        for claim in running
        if claim not in exact
    ]
    changes += [Change("conflict", left, right) for left, right in running.conflicts()]
    others = [claim for claim in ledger if claim.key not in keys]
    whole = Ledger((*running, *others))
    if whole.is_sound():
        return Rebuilt(whole, tuple(changes))
    losers = _losers(running, others)
    changes += [Change("dropped", loser, winner) for loser, winner in losers.items()]
    return Rebuilt(Ledger(tuple(claim for claim in whole if claim not in losers)), tuple(changes))


def _losers(running: Ledger, others: Iterable[Claim]) -> dict[Claim, Claim]:
    """Name the claims that must go, each with the one that wins: what runs, then what else its holders have."""
    holders = {claim.holder for claim in running}
    winners = {claim.key: claim for claim in running}
    accepted, losers = list(running), {}
    for claim in sorted(others, key=lambda claim: claim.holder not in holders):
        met = (other for other in accepted if other.block.overlaps(claim.block))
        if winner := winners.get(claim.key) or next(met, None):
            losers[claim] = winner
        else:
            accepted.append(claim)
            winners[claim.key] = claim
    return losers


def release(ledger: Ledger, keep: Collection[Holder], owners: Collection[Owner] | None = None) -> Ledger:
    """Free the claims of holders that are not kept; with `owners`, theirs only.

    `keep` must hold every holder that a spec wants or a pod still shows, read after the ledger was (package docstring);
    one without a uid, as pods may show it, keeps its namesakes.
    """

    def is_kept(claim: Claim) -> bool:
        if owners is not None and claim.holder.owner not in owners:
            return True
        return claim.holder in keep or claim.holder.without_uid in keep

    return Ledger(tuple(claim for claim in ledger if is_kept(claim)))


@dataclass(frozen=True, slots=True)
class Settled:
    """`ledger` is to be written, refused or not: it is healed and swept either way. `claims`: one for each request."""

    ledger: Ledger
    claims: tuple[Claim, ...] = ()
    refusal: Refusal | None = None
    warnings: tuple[PinVerdict, ...] = ()
    unmoved: tuple[Claim, ...] = ()
    changes: tuple[Change, ...] = ()
    freed: tuple[Claim, ...] = ()


def settle(
    stored: Ledger,
    requests: Sequence[Request],
    *,
    live: Iterable[Claim],
    keep: Collection[Holder],
    owners: Collection[Owner] | None = None,
    reserved: tuple[Reserved, ...] = (),
) -> Settled:
    """Heal by what runs, release what nobody keeps, then allocate: always in this order.

    Holders of the requests and of `live` are kept without being named. `owners`: whose claims may be freed; None: all.
    """
    live = tuple(live)
    live = with_uids(live, (*stored, *live))
    running = {claim.holder for claim in live}
    healed = rebuild(stored, live)
    kept = release(healed.ledger, {*keep, *running, *(request.holder for request in requests)}, owners)
    held = set(kept)
    freed = tuple(claim for claim in healed.ledger if claim not in held)
    answer = allocate(kept, requests, reserved=reserved, running=running)
    if isinstance(answer, Allocation):
        claims, warnings, unmoved = answer.claims, answer.warnings, answer.unmoved
        return Settled(answer.ledger, claims, None, warnings, unmoved, healed.changes, freed)
    return Settled(kept, refusal=answer, changes=healed.changes, freed=freed)


@dataclass(frozen=True, slots=True)
class Merged:
    """`lost`: claims of ours that must be asked for anew."""

    ledger: Ledger
    lost: tuple[Claim, ...] = ()


def merge(base: Ledger, ours: Ledger, theirs: Ledger, *, live: Iterable[Claim]) -> Merged:
    """Carry our new claims over to what another writer stored since `base`; what he stored, or what runs, wins.

    Only additions are carried. What we freed is not: that was an older look, and he may have kept it on purpose.
    `live` is read after `theirs`, as for `settle`: somebody's hand may have been there between.
    """
    healed = rebuild(theirs, live).ledger
    old, stored = set(base), set(healed)
    keys = {claim.key for claim in healed}
    lost, carried = [], []
    for claim in ours:
        if claim in old or claim in stored:
            continue
        if claim.key in keys or any(claim.block.overlaps(other.block) for other in healed):
            lost.append(claim)
        else:
            carried.append(claim)
    return Merged(healed.add(carried), tuple(lost))
