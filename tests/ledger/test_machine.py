"""The ledger under everything at once: deployments that come, grow, roll and go, engines that start and stop, two
writers that race or die half-way, users who pin ports and edit the ledger by hand.

What must hold after every step: no two running engines share a port; applying an engine never changes a running one;
after a write the ledger is sound and says where every running engine is; the same input gives the same answer. And once
everything is quiet: the ledger holds what is wanted or runs, and nothing else.

Without these tests, two engines on one host find each other's port in use, at random, weeks later.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvpp_operator.ledger.allocate import Allocation, Request, allocate
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.settle import Settled, merge, settle
from kvpp_operator.ledger.window import Window
from kvpp_operator.ledger.wire import dump, parse
from kvpp_operator.ports import PortRange, reserved_ranges

WINDOW = Window(22000, 22119, (PortRange(22040, 22043),))
PLACES = (Window(61000, 61059), Window(22000, 22119, (PortRange(22040, 22043),), downward=True))
LENGTHS = st.sampled_from([2, 3, 5, 9, 17])
HOST_LENGTH = 6
RESERVED = reserved_ranges(8)


@dataclass
class Deployment:
    """What a user's object says."""

    owner: Owner
    lengths: dict[str, int]
    replicas: dict[str, int]
    revision: int = 1
    pin: int | None = None
    generation: int = 1

    def requests(self) -> list[Request]:
        made = []
        for role, length in self.lengths.items():
            for index in range(self.replicas[role]):
                holder = Holder(self.owner, role, index, f"r{self.revision}")
                pin = self.pin if role == "prefill" else None
                made.append(Request(holder, KV, length, (WINDOW,), pin))
                made.append(Request(holder, HOST, HOST_LENGTH, PLACES))
        return made

    def wanted(self) -> set[Holder]:
        return {request.holder for request in self.requests()}


@dataclass
class Writer:
    """One operator process between its reads and its writes; a crash forgets all of it."""

    version: int | None = None
    ledger: Ledger = field(default_factory=Ledger)
    look: tuple[list[Request], set[Holder], tuple[Claim, ...], set[Owner] | None] | None = None
    generation: int = 0
    """Of the deployment, when it was looked at."""
    granted: dict[Holder, tuple[int, tuple[Claim, ...]]] = field(default_factory=dict)
    """With the generation that wanted it."""


class Cluster(RuleBasedStateMachine):
    steps = 0
    compares_versions = True
    looks_last = True

    def __init__(self) -> None:
        super().__init__()
        self.spec: Any = None
        self.version = 0
        self.names = 0
        self.deployments: dict[Owner, Deployment] = {}
        self.engines: dict[Holder, tuple[Claim, ...]] = {}
        self.writers = [Writer(), Writer()]

    @staticmethod
    def settle(stored: Ledger, requests: list[Request], **facts: Any) -> Settled:
        return settle(stored, requests, reserved=RESERVED, **facts)

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.random = random.Random(seed)

    # The user.

    @rule(prefill=LENGTHS, decode=LENGTHS, replicas=st.tuples(st.integers(0, 3), st.integers(0, 2)))
    def create(self, prefill: int, decode: int, replicas: tuple[int, int]) -> None:
        self.count()
        self.names += 1
        owner = Owner("default", f"d{self.names % 5}", f"uid{self.names}")
        if not any(other.name == owner.name for other in self.deployments):
            lengths, wanted = (
                {"prefill": prefill, "decode": decode},
                dict(zip(("prefill", "decode"), replicas, strict=True)),
            )
            self.deployments[owner] = Deployment(owner, lengths, wanted)

    @precondition(lambda self: self.deployments)
    @rule(which=st.integers(0, 9), role=st.sampled_from(["prefill", "decode"]), replicas=st.integers(0, 4))
    def scale(self, which: int, role: str, replicas: int) -> None:
        self.count()
        self.edit(which).replicas[role] = replicas

    @precondition(lambda self: self.deployments)
    @rule(which=st.integers(0, 9), length=LENGTHS)
    def roll(self, which: int, length: int) -> None:
        self.count()
        deployment = self.edit(which)
        deployment.revision += 1
        deployment.lengths["prefill"] = length

    @precondition(lambda self: self.deployments)
    @rule(
        which=st.integers(0, 9),
        pin=st.none() | st.integers(22000, 22060) | st.sampled_from([20500, 22100, 31000, 65530]),
    )
    def pin(self, which: int, pin: int | None) -> None:
        self.count()
        self.edit(which).pin = pin

    @precondition(lambda self: self.deployments)
    @rule(which=st.integers(0, 9))
    def delete(self, which: int) -> None:
        self.count()
        del self.deployments[self.pick(which).owner]

    @rule(edit=st.sampled_from(["wipe", "lose", "truncate", "move", "grow", "steal", "twice", "scribble"]))
    def edit_by_hand(self, edit: str) -> None:
        self.count()
        entries = dump(parse(self.spec).ledger)["claims"]
        if edit == "wipe":
            self.store(None)
        elif edit == "scribble":
            self.store({"claims": [*entries, 7, {"first": "x"}, None]})
        elif entries:
            at = self.random.randrange(len(entries))
            entry = dict(entries[at])
            if edit == "lose":
                del entries[at]
            elif edit == "truncate":
                del entries[at:]
            elif edit == "move":
                entries[at] = entry | {"first": entry["first"] + 1, "last": entry["last"] + 1}
            elif edit == "grow":
                entries[at] = entry | {"last": entry["last"] + 3}
            elif edit == "steal":
                entries[at] = entry | {"name": "thief", "uid": "nobody"}
            elif edit == "twice":
                entries.append(entry | {"first": entry["last"], "last": entry["last"] + 2})
            self.store({"claims": entries})

    # The cluster: pods of engines that nobody wants stop some time later, one by one.

    @precondition(lambda self: self.engines)
    @rule(which=st.integers(0, 99))
    def stop(self, which: int) -> None:
        self.count()
        unwanted = sorted(set(self.engines) - self.wanted())
        if unwanted:
            del self.engines[unwanted[which % len(unwanted)]]

    # The writers.

    @rule(index=st.integers(0, 1))
    def read(self, index: int) -> None:
        self.count()
        self.writers[index] = Writer(self.version, parse(self.spec).ledger, granted=self.writers[index].granted)

    @rule(index=st.integers(0, 1), which=st.integers(0, 9), sweep=st.booleans())
    def look(self, index: int, which: int, sweep: bool) -> None:  # noqa: FBT001
        self.count()
        writer = self.writers[index]
        if writer.version is None:
            return
        live = self.live()
        keep = self.wanted() | {claim.holder for claim in live}
        if sweep or not self.deployments:
            writer.look = [], keep, live, None
        else:
            deployment = self.pick(which)
            writer.look = deployment.requests(), keep, live, {deployment.owner}
            writer.generation = deployment.generation

    @rule(index=st.integers(0, 1))
    def commit(self, index: int) -> None:
        self.count()
        writer = self.writers[index]
        if writer.version is None or writer.look is None:
            return
        settled = self.decide(writer)
        lost: tuple[Claim, ...] = ()
        ledger = settled.ledger
        if self.compares_versions and self.version != writer.version:
            merged = merge(writer.ledger, settled.ledger, parse(self.spec).ledger, live=self.live())
            ledger, lost = merged.ledger, merged.lost
        self.store(dump(ledger))
        claims = [claim for claim in settled.claims if claim not in lost]
        self.writers[index] = Writer(
            granted={
                holder: (writer.generation, both)
                for holder in {claim.holder for claim in claims}
                if len(both := tuple(claim for claim in claims if claim.holder == holder)) == 2
            }
        )
        self.check_written()

    @rule(index=st.integers(0, 1), which=st.integers(0, 99))
    def apply(self, index: int, which: int) -> None:
        """One engine's workload is applied, after the last look that the package's docstring asks for."""
        self.count()
        granted = self.writers[index].granted
        if granted:
            holder = sorted(granted)[which % len(granted)]
            self.apply_engine(holder, *granted.pop(holder))

    @rule(index=st.integers(0, 1), which=st.integers(0, 9), stop_after=st.integers(0, 9))
    def take_a_turn(self, index: int, which: int, stop_after: int) -> None:
        """The usual case: nobody comes between. The writer may die after some of its applies."""
        self.read(index)
        self.look(index, which, sweep=False)
        self.commit(index)
        for _ in range(stop_after):
            self.apply(index, 0)

    @rule(first=st.integers(0, 9), second=st.integers(0, 9), sweep=st.booleans(), stop_after=st.integers(0, 9))
    def race(self, first: int, second: int, sweep: bool, stop_after: int) -> None:  # noqa: FBT001
        """Both writers read and look before either writes; what both were granted is then applied in turn."""
        for index in (0, 1):
            self.read(index)
        for index in (0, 1):
            self.look(index, (first, second)[index], sweep and index == 1)
        for index in (0, 1):
            self.commit(index)
        for number in range(stop_after):
            self.apply(number % 2, 0)

    @rule(index=st.integers(0, 1))
    def crash(self, index: int) -> None:
        self.count()
        self.writers[index] = Writer()

    # What must hold.

    @invariant()
    def no_port_is_bound_twice(self) -> None:
        claims = [claim for claims in self.engines.values() for claim in claims]
        clashes = [
            (str(left), str(right)) for left, right in combinations(claims, 2) if left.block.overlaps(right.block)
        ]
        assert clashes == []

    def check_written(self) -> None:
        ledger = parse(self.spec).ledger
        assert ledger.conflicts() == ()
        # Pods that lost deployment, workload and ledger can't be told from their namesakes; all others can.
        assert Ledger(tuple(claim for claim in ledger if claim.holder.owner.uid)).is_sound()
        there = {(claim.holder.without_uid, claim.purpose, claim.block) for claim in ledger}
        running = [claim for claims in self.engines.values() for claim in claims]
        assert [
            str(claim) for claim in running if (claim.holder.without_uid, claim.purpose, claim.block) not in there
        ] == []

    def teardown(self) -> None:
        """Everything becomes quiet: one writer takes turns until nothing changes."""
        self.writers = [Writer(), Writer()]
        for holder in set(self.engines) - self.wanted():
            del self.engines[holder]
        self.turn(None)
        served = {owner for owner, deployment in self.deployments.items() if self.turn(deployment).refusal is None}
        ledger = parse(self.spec).ledger
        holders = {claim.holder for claim in ledger}
        assert holders <= self.wanted(), "a claim leaked"
        assert set(self.engines) <= holders
        assert {holder for holder in self.wanted() if holder.owner in served} <= set(self.engines)
        before = self.spec
        self.turn(None)
        assert before == self.spec

    # How the steps above are made.

    def count(self) -> None:
        type(self).steps += 1

    def pick(self, which: int) -> Deployment:
        return sorted(self.deployments.items())[which % len(self.deployments)][1]

    def wanted(self) -> set[Holder]:
        return {holder for deployment in self.deployments.values() for holder in deployment.wanted()}

    def edit(self, which: int) -> Deployment:
        deployment = self.pick(which)
        deployment.generation += 1
        return deployment

    def store(self, spec: Any) -> None:
        self.spec, self.version = spec, self.version + 1

    def live(self) -> tuple[Claim, ...]:
        """Engines as their objects show them. Of a deployment that is gone only pods are left; they know no uid."""
        return tuple(
            claim
            if claim.holder.owner in self.deployments
            else Claim(claim.block, claim.holder.without_uid, claim.purpose)
            for claims in self.engines.values()
            for claim in claims
        )

    def decide(self, writer: Writer) -> Settled:
        assert writer.look is not None
        requests, keep, live, owners = writer.look
        facts = {"keep": keep, "owners": owners}
        settled = self.settle(writer.ledger, requests, live=live, **facts)
        again = self.settle(Ledger(writer.ledger.claims[::-1]), requests, live=live[::-1], **facts)
        assert (settled.ledger, settled.claims) == (again.ledger, again.claims)
        return settled

    def apply_engine(self, holder: Holder, generation: int, claims: tuple[Claim, ...]) -> None:
        deployment = self.deployments.get(holder.owner)
        is_same = deployment is not None and deployment.generation == generation
        if self.looks_last and not (is_same and parse(self.spec).ledger.holds(claims)):
            return
        running = self.engines.setdefault(holder, claims)
        assert sorted(map(str, running)) == sorted(map(str, claims)), "a running engine was moved"

    def turn(self, deployment: Deployment | None) -> Settled:
        requests = deployment.requests() if deployment else []
        live = self.live()
        writer = Writer(self.version, parse(self.spec).ledger)
        keep = self.wanted() | {claim.holder for claim in live}
        writer.look = requests, keep, live, {deployment.owner} if deployment else None
        settled = self.decide(writer)
        self.spec = dump(settled.ledger)
        self.check_written()
        for holder in sorted({claim.holder for claim in settled.claims}):
            assert deployment is not None
            claims = tuple(claim for claim in settled.claims if claim.holder == holder)
            self.apply_engine(holder, deployment.generation, claims)
        return settled


SMALL = settings(
    max_examples=120, stateful_step_count=50, deadline=None, derandomize=True, database=None, print_blob=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def test_small() -> None:
    run_state_machine_as_test(Cluster, settings=SMALL)


@pytest.mark.long
def test_a_hundred_thousand_steps() -> None:
    Cluster.steps = 0
    rounds = 0
    while Cluster.steps < 100_000:
        rounds += 1
        run_state_machine_as_test(
            Cluster, settings=settings(SMALL, max_examples=300, stateful_step_count=100, derandomize=False)
        )
    print(f"{Cluster.steps} steps in {rounds} rounds")


class PicksWithoutLooking(Cluster):
    """An allocator that forgets what others hold."""

    @staticmethod
    def settle(stored: Ledger, requests: list[Request], **facts: Any) -> Settled:
        right = settle(stored, requests, reserved=RESERVED, **facts)
        answer = allocate(Ledger(), requests)
        if right.refusal or not isinstance(answer, Allocation):
            return right
        return Settled(right.ledger.add(answer.claims), answer.claims)


class MovesWhatRuns(Cluster):
    """One that gives a restarted engine new ports."""

    @staticmethod
    def settle(stored: Ledger, requests: list[Request], **facts: Any) -> Settled:
        asking = {request.holder for request in requests}
        others = Ledger(tuple(claim for claim in stored if claim.holder not in asking))
        live = tuple(claim for claim in facts.pop("live") if claim.holder not in asking)
        return settle(others, requests, live=live, reserved=RESERVED, **facts)


class FreesWhatRuns(Cluster):
    """One that believes the spec alone: what nobody wants is free at once."""

    @staticmethod
    def settle(stored: Ledger, requests: list[Request], **facts: Any) -> Settled:
        running = {claim.holder for claim in facts["live"]}
        wanted = {holder for holder in facts["keep"] if holder not in running}
        return settle(stored, requests, live=(), keep=wanted, owners=facts["owners"], reserved=RESERVED)


class TrustsTheLedger(Cluster):
    """One that never looks at what runs, so a hand edit stays."""

    @staticmethod
    def settle(stored: Ledger, requests: list[Request], **facts: Any) -> Settled:
        return settle(stored, requests, live=(), keep=facts["keep"], owners=facts["owners"], reserved=RESERVED)


class NeverFrees(Cluster):
    @staticmethod
    def settle(stored: Ledger, requests: list[Request], **facts: Any) -> Settled:
        everyone = {*facts.pop("keep"), *(claim.holder for claim in stored)}
        return settle(stored, requests, keep=everyone, reserved=RESERVED, **facts)


class WritesBlindly(Cluster):
    """Two writers without compare-and-swap; the last look alone would still save them."""

    compares_versions = False
    looks_last = False


class AppliesBlindly(Cluster):
    """A slow writer that doesn't look again before it applies, although somebody edited the ledger meanwhile."""

    looks_last = False


BROKEN = (PicksWithoutLooking, MovesWhatRuns, FreesWhatRuns, TrustsTheLedger, NeverFrees, WritesBlindly)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_ledger_is_caught(broken: type[Cluster]) -> None:
    """The machine can fail: each of these mistakes breaks one of its invariants."""
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            broken, settings=settings(SMALL, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
        )


@pytest.mark.parametrize(("machine", "clashes"), [(Cluster, False), (AppliesBlindly, True)])
def test_the_last_look_saves_a_slow_writer(machine: type[Cluster], clashes: bool) -> None:  # noqa: FBT001
    """Granted, not yet applied; then the ledger is wiped by hand and another writer serves somebody else."""
    cluster = two_deployments(machine)
    cluster.take_a_turn(index=0, which=0, stop_after=0)
    cluster.edit_by_hand("wipe")
    cluster.take_a_turn(index=1, which=1, stop_after=1)
    cluster.apply(index=0, which=0)
    assert clashes == breaks(cluster.no_port_is_bound_twice)


@pytest.mark.parametrize(("machine", "is_lost"), [(Cluster, False), (AppliesBlindly, True)])
@pytest.mark.parametrize("unwanted", ["deleted", "scaled down and up again"])
def test_the_last_look_saves_what_another_writer_frees(machine: type[Cluster], is_lost: bool, unwanted: str) -> None:  # noqa: FBT001
    """Granted, not yet applied; another writer has seen that nobody wants the engine, and is about to free its claims."""
    cluster = two_deployments(machine)
    cluster.take_a_turn(index=0, which=0, stop_after=0)
    if unwanted == "deleted":
        cluster.delete(which=0)
    else:
        cluster.scale(which=0, role="prefill", replicas=0)
    cluster.read(index=1)
    cluster.look(index=1, which=0, sweep=True)
    if unwanted != "deleted":
        cluster.scale(which=0, role="prefill", replicas=1)
    cluster.apply(index=0, which=0)
    assert is_lost == breaks(lambda: cluster.commit(index=1))


def two_deployments(machine: type[Cluster]) -> Cluster:
    cluster = machine()
    cluster.begin(seed=0)
    for _ in range(2):
        cluster.create(prefill=9, decode=2, replicas=(1, 0))
    return cluster


def breaks(step: Callable[[], None]) -> bool:
    try:
        step()
    except AssertionError:
        return True
    return False
