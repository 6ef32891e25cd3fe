"""Which engine owns which ports of the hosts: the pure half. `cluster` reads and writes the object.

A *claim* gives one *block* to one *holder* (an engine of one revision) for one purpose: `kv` or `host` (`ports`).
Blocks are picked from a *window*; a *pin* is the start that a user gave a role. All claims stand in one cluster-scoped
object, written only by compare-and-swap, so two writers never hand out the same port. One turn of a writer:

1. read the object, and keep its resourceVersion
2. read, not from a cache older than 1, the wanted holders and what the live objects show (`live.live_claims`)
3. `settle`: heal, release, allocate; one pure call
4. write with the resourceVersion of 1; when it lost, go to 1 (`merge` may carry the new claims over)
5. before an engine is started: `Ledger.holds` its claims, on a ledger read just now, and its deployment is still the one
   that 2 saw, by uid and generation

Why the order: a claim is written before its pods exist, so reading pods *after* the ledger can't miss those of a claim
that is in it. Releasing by an older look would free the block of an engine that has started since; and one that
was unwanted at the look is started after it only by who has not looked last.
A running engine never moves: what it shows wins over what the ledger says.
"""
