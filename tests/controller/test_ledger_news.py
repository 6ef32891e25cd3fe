"""Whom a change of the port ledger wakes."""

from __future__ import annotations

from typing import Any

import pytest

from kvpp_operator.cluster.cache import Cache
from kvpp_operator.cluster.client import collection_of
from kvpp_operator.cluster.ledger import KEY
from kvpp_operator.controller.ledger_news import claimants, concerned
from kvpp_operator.controller.streams import Streams
from kvpp_operator.ledger.claim import KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.crd import ledger_object
from kvpp_operator.ledger.wire import dump
from kvpp_operator.manifest import API_VERSION, KIND, LEDGERS, PODS, DeploymentKey
from kvpp_operator.ports import PortRange


def claim(name: str, first: int, namespace: str = "team") -> Claim:
    return Claim(PortRange.of(first, 9), Holder(Owner(namespace, name, f"u-{name}"), "prefill", 0, "r1"), KV)


A, B, ELSEWHERE = claim("a", 22000), claim("b", 22009), claim("c", 22018, "other")


def cache_with(*claims: Claim, waiting: tuple[str, ...] = ()) -> Cache:
    cache = Cache()
    manifest = ledger_object(dump(Ledger(claims)))
    cache.put({**manifest, "metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": str(len(claims) + 1)}})
    for name in ("a", "b", "w"):
        status = "False" if name in waiting else "True"
        cache.put(deployment(name, [{"type": "PortsAllocated", "status": status}]))
    return cache


def deployment(name: str, conditions: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": f"u-{name}", "resourceVersion": "7"}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": {"conditions": conditions}}


def woken(
    before: tuple[Claim, ...], now: tuple[Claim, ...], namespaces: tuple[str, ...] = (), waiting: tuple[str, ...] = ()
) -> set[str]:
    old, new = cache_with(*before).entry(KEY), cache_with(*now, waiting=waiting)
    return {str(key) for key in concerned(old, new.entry(KEY), new, namespaces)}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((), (A,), {"team/a"}),
        ((A,), (A,), set()),
        ((A, B), (A,), {"team/b"}),
        ((A,), (claim("a", 23000),), {"team/a"}),
        ((A,), (claim("b", 22000),), {"team/a", "team/b"}),
        ((A, ELSEWHERE), (A,), {"other/c"}),
    ],
)
def test_those_whose_claims_came_or_went(before: tuple[Claim, ...], now: tuple[Claim, ...], expected: set[str]) -> None:
    assert woken(before, now) == expected


def test_a_ledger_that_is_gone_concerns_all_who_were_in_it() -> None:
    cache = cache_with(A, B)
    assert concerned(cache.entry(KEY), None, cache, ()) == {DeploymentKey("team", "a"), DeploymentKey("team", "b")}


def test_freed_ports_wake_those_who_wait_for_some() -> None:
    assert woken((A, B), (A,), waiting=("w",)) == {"team/b", "team/w"}
    assert woken((A,), (A, B), waiting=("w",)) == {"team/b"}


def test_what_lies_in_namespaces_of_others_is_theirs() -> None:
    """An operator of some namespaces must not free what it can't see."""
    assert woken((A, ELSEWHERE), (), namespaces=("team",)) == {"team/a"}
    assert claimants(cache_with(A, ELSEWHERE), ("team",)) == {DeploymentKey("team", "a")}
    assert claimants(cache_with(A, ELSEWHERE), ()) == {DeploymentKey("team", "a"), DeploymentKey("other", "c")}
    assert claimants(Cache(), ()) == set()


def test_the_ledger_has_one_watch_however_many_namespaces_are_served() -> None:
    streams = list(Streams((PODS, LEDGERS), ("one", "two")))
    assert [(stream.kind.plural, stream.namespace) for stream in streams] == [
        ("pods", "one"), ("pods", "two"), ("kvppportledgers", ""),
    ]  # fmt: skip
    assert collection_of(LEDGERS, "one") == collection_of(LEDGERS)
