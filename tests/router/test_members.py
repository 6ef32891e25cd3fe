"""Who should be behind the proxy: from slices and looks at health to a set of members."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kvpp_operator import names
from kvpp_operator.router import members, slices
from kvpp_operator.router.members import Endpoint, Health, Member, Outcome, Policy
from kvpp_operator.router.spelling import plain, spellings
from kvpp_operator.router.steps import Held, Steps, is_in_step, steps

P1, P2 = Member("prefill", "10.0.0.1:8000"), Member("prefill", "10.0.0.2:8000")
D1, D2 = Member("decode", "10.0.1.1:8000"), Member("decode", "10.0.1.2:8000")
P2_AGAIN = Member("prefill", "10.0.2:8000")
INVENTED = {Member("prefill", "localhost:8001"), Member("decode", "localhost:8002")}
POLICY = Policy(hold_seconds=2, refusals=2, silent_seconds=20)


def piece(role: str, *addresses: str, revision: str = "a", ready: bool = True, **more: Any) -> dict[str, Any]:
    labels = {names.ROLE: role, names.REVISION: revision}
    conditions = {"ready": ready, "serving": ready, "terminating": False, **more.pop("conditions", {})}
    found = [
        {"addresses": [address], "conditions": conditions, "targetRef": {"uid": f"pod-{address}"}}
        for address in addresses
    ]
    return {
        "metadata": {"name": f"{role}-{revision}", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000}],
        "endpoints": found,
        **more,
    }


@pytest.mark.parametrize(
    ("slice_", "serving"),
    [
        (piece("prefill", "10.0.0.1"), {P1: True}),
        (piece("prefill", "10.0.0.1", "10.0.0.2"), {P1: True, P2: True}),
        (piece("prefill", "10.0.0.1", ready=False), {P1: False}),
        (piece("prefill", "10.0.0.1", conditions={"terminating": True}), {P1: False}),
        (piece("prefill", "10.0.0.1", conditions={"ready": False, "serving": True, "terminating": True}), {P1: False}),
        (piece("prefill", "10.0.0.1", conditions={"ready": None}), {P1: True}),  # absent means ready (the API's words)
        (piece("unified", "10.0.0.1"), {}),
        (piece("prefill", "fd00::1", addressType="IPv6"), {}),
        (piece("prefill", "10.0.0.1", ports=[{"name": "metrics", "port": 8000}]), {}),
        (
            piece("prefill", "10.0.0.1", ports=[{"name": "http", "port": 17017}]),
            {Member("prefill", "10.0.0.1:17017"): True},
        ),
        (piece("prefill", revision="", ready=True), {}),
        (piece("prefill", endpoints=None), {}),
    ],
)
def test_endpoints_of_a_slice(slice_: dict[str, Any], serving: dict[Member, bool]) -> None:
    assert {endpoint.member: endpoint.serving for endpoint in slices.endpoints([slice_])} == serving


def test_an_address_in_two_slices_serves_only_if_both_say_so() -> None:
    both = [piece("prefill", "10.0.0.1"), piece("prefill", "10.0.0.1", ready=False)]
    assert [endpoint.serving for endpoint in slices.endpoints(both)] == [False]
    assert slices.endpoints(both) == slices.endpoints(reversed(both))


@pytest.mark.parametrize(
    ("looks", "held", "lost"),
    [
        ([], False, False),
        ([(0, "ok")], False, False),
        ([(0, "ok"), (1, "ok"), (2, "ok")], True, False),
        ([(0, "ok"), (1, "refused"), (2, "ok")], False, False),  # from the start again
        ([(0, "ok"), (5, "refused")], False, False),
        ([(0, "ok"), (5, "refused"), (6, "refused")], False, True),
        ([(0, "ok"), (5, "silent"), (24, "silent")], False, False),
        ([(0, "ok"), (5, "silent"), (25, "silent")], False, True),
        ([(0, "ok"), (5, "silent"), (10, "ok"), (26, "silent")], False, False),
    ],
)
def test_health(looks: list[tuple[float, Outcome]], held: bool, lost: bool) -> None:  # noqa: FBT001
    health, now = Health(), 0.0
    for now, outcome in looks:
        health = health.after(outcome, now)
    assert (health.has_held(POLICY, now), health.is_lost(POLICY, now)) == (held, lost)


def endpoint(member: Member, revision: str = "a", *, serving: bool = True) -> Endpoint:
    return Endpoint(member, revision, serving)


WELL, NEW, ILL = Health(healthy_since=0), Health(healthy_since=9.5), Health(refusals=1)


def test_it_is_harder_to_come_in_than_to_stay_in() -> None:
    p1, p2, d1 = endpoint(P1), endpoint(P2), endpoint(D1)
    health = {p1: WELL, p2: ILL, d1: NEW}
    assert members.admitted([p1, p2, d1], health, (), POLICY, now=10) == {p1}
    assert members.admitted([p1, p2, d1], health, {p2, d1}, POLICY, now=10) == {p1, p2, d1}
    stopping = endpoint(P1, serving=False)
    assert members.admitted([stopping], {stopping: WELL}, {stopping}, POLICY, now=10) == frozenset()


A = (endpoint(P1, "a"), endpoint(D1, "a"))
B = (endpoint(P2, "b"), endpoint(D2, "b"))


@pytest.mark.parametrize(
    ("wish", "current", "there", "serves"),
    [
        ("a", "", A, "a"),
        ("b", "", A, "b"),  # nobody has served yet: wait for what is wished
        ("b", "a", A, "a"),
        ("b", "a", (*A, B[0]), "a"),
        ("b", "a", (*A, *B), "b"),
        ("b", "a", B, "b"),
        ("b", "a", (A[0],), "a"),  # the new one can't serve either, and the old one may recover
    ],
)
def test_one_revision_serves(wish: str, current: str, there: tuple[Endpoint, ...], serves: str) -> None:
    assert members.serving_revision(wish, current, there) == serves


@pytest.mark.parametrize(
    ("wanted", "held", "todo"),
    [
        ({P1, D1}, Held(frozenset(INVENTED)), Steps(add=frozenset({P1, D1}), remove=frozenset(INVENTED))),
        ({P1, D1}, Held(frozenset({P1, D1})), Steps(frozenset(), frozenset())),
        ({P1, D1}, Held(frozenset({P1, P2, D1})), Steps(frozenset(), frozenset({P2}))),
        # Set aside while requests run: not removed again, and when it is wanted again added under another spelling.
        ({P1, D1}, Held(frozenset({P1, P2, D1}), frozenset({P2})), Steps(frozenset(), frozenset())),
        ({P1, P2, D1}, Held(frozenset({P1, P2, D1}), frozenset({P2})), Steps(frozenset({P2_AGAIN}), frozenset())),
        ({P1, P2, D1}, Held(frozenset({P1, P2, P2_AGAIN, D1}), frozenset({P2})), Steps(frozenset(), frozenset())),
        ({P1, D1}, Held(frozenset({P1, P2, P2_AGAIN, D1}), frozenset({P2})), Steps(frozenset(), frozenset({P2_AGAIN}))),
        # Both spellings came in: one is enough.
        ({P1, P2, D1}, Held(frozenset({P1, P2, P2_AGAIN, D1})), Steps(frozenset(), frozenset({P2_AGAIN}))),
        ({P1, P2, D1}, Held(frozenset({P1, D1})), Steps(frozenset({P2}), frozenset())),
        # Never removed before it is listed: that would kill the proxy's thread that adds.
        ({P1, D1}, Held(frozenset({P1})), Steps(frozenset({D1}), frozenset())),
        (set(), Held(frozenset({P1})), Steps(frozenset(), frozenset({P1}))),
    ],
)
def test_steps(wanted: set[Member], held: Held, todo: Steps) -> None:
    assert steps(frozenset(wanted), held) == todo


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("10.1.2.3:80", ["10.1.2.3:80", "10.1.515:80", "10.66051:80", "167838211:80"]),
        ("localhost:80", ["localhost:80"]),
        ("10.1.2.256:80", ["10.1.2.256:80"]),
        ("1.2.3.4.5:80", ["1.2.3.4.5:80"]),
    ],
)
def test_spellings(address: str, written: list[str]) -> None:
    found = spellings(Member("decode", address))
    assert [member.address for member in found] == written
    assert {plain(member).address for member in found} == {address}
    for member in found[1:]:
        host = member.address.partition(":")[0]
        assert socket.inet_ntoa(socket.inet_aton(host)) == address.partition(":")[0]


def test_who_is_no_longer_listed_has_left() -> None:
    held = Held(frozenset({P1, P2})).removed(frozenset({P2, D1}))
    assert held == Held(frozenset({P1, P2}), frozenset({P2}))
    assert held.usable == {P1}
    assert held.seen(frozenset({P1})) == Held(frozenset({P1}))


@pytest.mark.parametrize(
    ("wanted", "listed", "in_step"),
    [
        ({P1, D1}, {P1, D1}, True),
        ({P1, P2, D1}, {P1, D1}, True),  # one more is on its way
        ({P1, D1}, {P1, P2, D1}, False),
        ({P1, D1}, INVENTED, False),
        (set(), set(), False),
    ],
)
def test_in_step(wanted: set[Member], listed: set[Member], in_step: bool) -> None:  # noqa: FBT001
    assert is_in_step(frozenset(wanted), Held(frozenset(listed))) == in_step


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ({P1, D1}, ""),
        ({P1}, "no healthy decode engine"),
        (set(), "no healthy prefill and no healthy decode engine"),
    ],
)
def test_missing(present: set[Member], words: str) -> None:
    assert members.missing(present) == words
