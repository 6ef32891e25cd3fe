"""The ledger's CRD: the schema refuses what the model refuses, and a full ledger is small."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.crd import MAX_CLAIMS, ClaimEntry, LedgerObject, ledger_crd, ledger_object
from kvpp_operator.ledger.wire import dump
from kvpp_operator.ports import PortRange

VERSION = ledger_crd()["spec"]["versions"][0]
SPEC = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
ENTRY: dict[str, Any] = {
    "first": 22000, "last": 22008, "purpose": "kv", "namespace": "default", "name": "demo", "uid": "u1",
    "role": "prefill", "engine": 0, "revision": "r1",
}  # fmt: skip


def full_ledger() -> Ledger:
    """More than a full default window: 1,000 engines with long names, a kv and a host block each."""
    claims = []
    for index in range(1000):
        owner = Owner("n" * 63, f"{index:063}", "12345678-1234-1234-1234-123456789012")
        engine = Holder(owner, "prefill", index % 8, "0123456789abcdef")
        claims += [
            Claim(PortRange.of(22000 + 9 * index, 9), engine, KV),
            Claim(PortRange.of(40000 + 19 * index, 19), engine, HOST),
        ]
    return Ledger(tuple(claims))


def test_identity() -> None:
    crd = ledger_crd()
    assert crd["metadata"]["name"] == "kvppportledgers.serving.kvpp.io"
    assert (crd["spec"]["scope"], crd["spec"]["names"]["kind"]) == ("Cluster", "KVPPPortLedger")
    assert [column["name"] for column in VERSION["additionalPrinterColumns"]] == ["Claims", "Ports", "Age"]


def test_the_first_port_is_the_lists_key() -> None:
    claims = SPEC["claims"]
    assert (claims["x-kubernetes-list-type"], claims["x-kubernetes-list-map-keys"]) == ("map", ["first"])
    assert "first" in claims["items"]["required"]


def test_everything_is_bounded() -> None:
    """The API server prices CEL rules by bounds; an unbounded list makes it refuse the CRD."""
    assert SPEC["claims"]["maxItems"] == MAX_CLAIMS
    for field in SPEC["claims"]["items"]["properties"].values():
        assert "maxLength" in field if field["type"] == "string" else {"minimum", "maximum"} <= field.keys()


def test_the_schema_has_nothing_that_is_not_structural() -> None:
    words = {
        "type",
        "description",
        "properties",
        "required",
        "items",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "maxItems",
        "enum",
    }

    def check(node: dict[str, Any]) -> None:
        assert {key for key in node if not key.startswith("x-kubernetes-")} <= words
        for child in node.get("properties", {}).values():
            check(child)
        if "items" in node:
            check(node["items"])

    check(VERSION["schema"]["openAPIV3Schema"])


def test_what_is_dumped_is_the_model() -> None:
    manifest = ledger_object(dump(full_ledger()), "7")
    assert manifest["metadata"] == {"name": "default", "resourceVersion": "7"}
    spec = {key: value for key, value in manifest.items() if key != "metadata"}
    assert len(LedgerObject.model_validate(spec).spec.claims) == 2000


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 0},
        {"last": 65536},
        {"first": "22000"},
        {"name": ""},
        {"engine": -1},
        {"purpose": "x" * 33},
        {"colour": "blue"},
    ],
)
def test_a_wrong_entry_is_refused(wrong: dict[str, Any]) -> None:
    ClaimEntry.model_validate(ENTRY)
    with pytest.raises(ValidationError):
        ClaimEntry.model_validate(ENTRY | wrong)


def test_a_full_ledger_stays_far_below_a_mebibyte() -> None:
    """2,000 claims with the longest names; managedFields adds one key for each."""
    spec = dump(full_ledger())
    managed = [f'k:{{"first":{entry["first"]}}}' for entry in spec["claims"]]
    size = len(json.dumps(ledger_object(spec, "123456789"), separators=(",", ":"))) + sum(
        len(key) + 8 for key in managed
    )
    assert size < 0.75 * 1024 * 1024
