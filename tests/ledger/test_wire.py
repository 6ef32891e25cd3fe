"""The ledger as stored: written the same way each time, read whatever a hand has done to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.wire import dump, parse
from kvpp_operator.ports import PortRange

TEXT = st.text(max_size=8)
HOLDERS = st.builds(Holder, st.builds(Owner, TEXT, TEXT, TEXT), TEXT, st.integers(0, 9), TEXT)
BLOCKS = st.builds(PortRange.of, st.integers(1, 60000), st.integers(1, 99))
CLAIMS = st.builds(Claim, BLOCKS, HOLDERS, st.sampled_from([KV, HOST, "later"]))
LEDGERS = st.builds(lambda claims: Ledger(tuple(claims)), st.lists(CLAIMS, unique_by=lambda claim: claim.block.first))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.just("claims"), inner, max_size=4)
    ),
    max_leaves=12,
)
ENTRY: dict[str, Any] = {
    "first": 22000, "last": 22008, "purpose": "kv", "namespace": "default", "name": "demo", "uid": "u1",
    "role": "prefill", "engine": 0, "revision": "r1",
}  # fmt: skip
QUIET = settings(deadline=None, derandomize=True, database=None)


@given(ledger=LEDGERS)
@QUIET
def test_what_was_written_is_read(ledger: Ledger) -> None:
    spec = json.loads(json.dumps(dump(ledger)))
    assert ledger == parse(spec).ledger
    assert parse(spec).dropped == ()
    assert json.dumps(spec) == json.dumps(dump(Ledger(ledger.claims[::-1])))


@given(spec=JSON)
@QUIET
def test_nothing_makes_reading_fail(spec: object) -> None:
    parsed = parse(spec)
    assert parsed == parse(dump(parsed.ledger)) or parsed.dropped or not parsed.ledger.is_sound()


def test_the_written_form() -> None:
    claim = Claim(PortRange(22000, 22008), Holder(Owner("default", "demo", "u1"), "prefill", 0, "r1"), KV)
    expected = {"summary": {"claims": 1, "ports": 9}, "claims": [ENTRY]}
    assert expected == dump(Ledger((claim,)))
    assert dump(Ledger()) == {"summary": {"claims": 0, "ports": 0}, "claims": []}


@pytest.mark.parametrize("spec", [None, {}, {"claims": None}, {"claims": []}, []])
def test_an_empty_ledger_has_many_forms(spec: object) -> None:
    assert (Ledger(), ()) == (parse(spec).ledger, parse(spec).dropped)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (7, "a claim is an object, this is int"),
        (None, "a claim is an object, this is NoneType"),
        ({}, "namespace must be text, is None"),
        (ENTRY | {"uid": 5}, "uid must be text, is 5"),
        (ENTRY | {"first": "22000"}, "first must be a whole number, is '22000'"),
        (ENTRY | {"engine": True}, "engine must be a whole number, is True"),
        (ENTRY | {"engine": -1}, "engine must be 0 or more, is -1"),
        (ENTRY | {"last": 21999}, "22000-21999 is no port range: 1 <= first <= last <= 65535"),
        (ENTRY | {"last": 70000}, "22000-70000 is no port range: 1 <= first <= last <= 65535"),
    ],
)
def test_a_bad_entry_is_reported_and_the_others_are_kept(entry: object, reason: str) -> None:
    parsed = parse({"claims": [ENTRY, entry, ENTRY | {"first": 22004, "uid": "u2"}]})
    assert [f"spec.claims[1]: {reason}"] == [str(dropped) for dropped in parsed.dropped]
    assert [claim.block.first for claim in parsed.ledger] == [22000, 22004]  # overlapping, but both can be read


def test_a_ledger_that_is_no_list() -> None:
    assert [str(dropped) for dropped in parse({"claims": "gone"}).dropped] == ["spec.claims: must be a list, is str"]


def test_what_a_newer_operator_writes_is_kept() -> None:
    """An older operator that dropped claims it doesn't understand would hand their ports out again."""
    parsed = parse({"claims": [ENTRY | {"purpose": "telepathy", "role": "oracle", "colour": "blue"}], "mood": "good"})
    assert (len(parsed.ledger), parsed.dropped) == (1, ())


def test_of_two_claims_on_one_first_port_one_is_written() -> None:
    """The list's key is the first port: the API server refuses a second one."""
    holders = [Holder(Owner("default", name, ""), "prefill", 0, "r1") for name in ("a", "b")]
    twins = Ledger(tuple(Claim(PortRange(22000, 22008), holder, KV) for holder in holders))
    expected = ["a"]
    assert expected == [entry["name"] for entry in dump(twins)["claims"]]
