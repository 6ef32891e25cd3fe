"""The ledger as the object's `spec`: `dump` writes it, `parse` reads it, edited by hand or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvpp_operator.ledger.claim import Claim, Holder, Ledger, Owner
from kvpp_operator.ports import PortRange

TEXTS = ("namespace", "name", "uid", "role", "revision", "purpose")
NUMBERS = ("engine", "first", "last")


@dataclass(frozen=True, slots=True)
class Dropped:
    """An entry that can't be read. `index`: its place in `spec.claims`, -1 for the list itself."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"spec.claims[{self.index}]: {self.reason}" if self.index >= 0 else f"spec.claims: {self.reason}"


@dataclass(frozen=True, slots=True)
class Parsed:
    ledger: Ledger
    dropped: tuple[Dropped, ...] = ()


def _fault(entry: object) -> str:
    """Say why an entry is no claim, "" when it is one. A field that we don't know is no fault: a newer operator's."""
    if not isinstance(entry, dict):
        return f"a claim is an object, this is {type(entry).__name__}"
    for name in TEXTS:
        if not isinstance(entry.get(name), str):
            return f"{name} must be text, is {entry.get(name)!r:.80}"
    for name in NUMBERS:
        if type(entry.get(name)) is not int:  # True is an int to isinstance
            return f"{name} must be a whole number, is {entry.get(name)!r:.80}"
    if entry["engine"] < 0:
        return f"engine must be 0 or more, is {entry['engine']}"
    try:
        PortRange(entry["first"], entry["last"])
    except ValueError as error:
        return str(error)
    return ""


def _claim(entry: dict[str, Any]) -> Claim:
    owner = Owner(entry["namespace"], entry["name"], entry["uid"])
    holder = Holder(owner, entry["role"], entry["engine"], entry["revision"])
    return Claim(PortRange(entry["first"], entry["last"]), holder, entry["purpose"])


def parse(spec: object) -> Parsed:
    """Read the ledger in a `spec`, and say what had to be dropped. Never raises; claims that overlap stay."""
    entries = spec.get("claims", []) if isinstance(spec, dict) else spec
    if entries is None:
        return Parsed(Ledger())
    if not isinstance(entries, list):
        return Parsed(Ledger(), (Dropped(-1, f"must be a list, is {type(entries).__name__}"),))
    claims, dropped = [], []
    for index, entry in enumerate(entries):
        if reason := _fault(entry):
            dropped.append(Dropped(index, reason))
        else:
            claims.append(_claim(entry))
    return Parsed(Ledger(tuple(claims)), tuple(dropped))


def _entry(claim: Claim) -> dict[str, Any]:
    holder = claim.holder
    return {
        "first": claim.block.first,
        "last": claim.block.last,
        "purpose": claim.purpose,
        "namespace": holder.owner.namespace,
        "name": holder.owner.name,
        "uid": holder.owner.uid,
        "role": holder.role,
        "engine": holder.engine,
        "revision": holder.revision,
    }


def dump(ledger: Ledger) -> dict[str, Any]:
    """Write a ledger as a `spec`; equal ledgers give equal bytes.

    The list's key is `first`, so of claims that start at the same port (two running engines in conflict) the first in
    order is written. `settle` puts the other one back from what runs as soon as its place is free.
    """
    by_first: dict[int, Claim] = {}
    for claim in ledger:
        by_first.setdefault(claim.block.first, claim)
    written = by_first.values()
    ports = sum(claim.block.length for claim in written)
    return {"summary": {"claims": len(by_first), "ports": ports}, "claims": [_entry(claim) for claim in written]}
