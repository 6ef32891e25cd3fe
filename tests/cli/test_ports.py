"""`kvpp ports` on files, and what `kvpp validate` says of pins on one host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import specs
import yaml

HOST = {"networking": {"hostNetwork": True, "interface": "eth0"}}
TINY: dict[str, Any] = {
    **specs.DISAGGREGATED,
    "prefill": {"parallelism": {"tensor": 8, "expert": True}},
    "decode": {"parallelism": {"tensor": 8, "expert": True}},
}


def document(name: str = "demo", **changes: Any) -> dict[str, Any]:
    body = specs.deployment(TINY, name=name, **{**HOST, **changes})
    return {**body, "metadata": {"name": name, "namespace": "default"}}


def text(*bodies: dict[str, Any]) -> str:
    return str(yaml.safe_dump_all(bodies))


def columns(line: str) -> list[str]:
    return line.split()


def test_a_table_of_who_owns_what(kvpp: Any) -> None:
    result = kvpp("ports", "-", input=text(document("a"), document("b")))
    lines = result.stdout.splitlines()
    assert columns(lines[0]) == ["PORTS", "PURPOSE", "DEPLOYMENT", "ROLE", "ENGINE", "REVISION", "MARK"]
    rows = [columns(line) for line in lines[1:9]]
    assert [(row[0], row[1], row[2], row[3], row[4], row[6] if len(row) > 6 else "") for row in rows] == [
        ("17001-17019", "host", "default/a", "decode", "0", "A"), ("17020-17038", "host", "default/a", "prefill", "0", "A"),
        ("17039-17057", "host", "default/b", "decode", "0", "B"), ("17058-17076", "host", "default/b", "prefill", "0", "B"),
        ("22000-22008", "kv", "default/a", "decode", "0", "A"), ("22009-22017", "kv", "default/a", "prefill", "0", "A"),
        ("22018-22026", "kv", "default/b", "decode", "0", "B"), ("22027-22035", "kv", "default/b", "prefill", "0", "B"),
    ]  # fmt: skip
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_picture_of_the_window(kvpp: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("kvPorts: {first: 22000, last: 22079}\nreservedPorts: [22040-22043]\n", "utf-8")
    shown = kvpp("ports", "--config", str(config), "-", input=text(document("a"), document("b"))).stdout.splitlines()
    at = shown.index("window 22000-22079: 40 of 76 ports free; a cell is 1 ports")
    cells = "." * 40 + "x" * 4 + "A" * 18 + "B" * 18  # the smallest run that fits, both times
    assert shown[at + 1 :] == [
        f"  22000 {cells}",
        "  . free   x reserved   ! conflict   + several owners",
        "free runs, the longest first: 22000-22039 (40)",
        "host blocks 17001-19999: 2923 of 2999 ports free",
        "host blocks 21601-21999: 399 of 399 ports free",
        "host blocks 61000-65535: 4536 of 4536 ports free",
    ]


def test_a_whole_directory_is_planned_as_one_cluster(kvpp: Any, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.yaml").write_text(text(document(name)), "utf-8")
    report = json.loads(kvpp("ports", "-o", "json", str(tmp_path)).stdout)
    assert [(claim["name"], claim["role"]) for claim in report["claims"] if claim["purpose"] == "kv"] == [
        ("a", "decode"), ("a", "prefill"), ("b", "decode"), ("b", "prefill"), ("c", "decode"), ("c", "prefill"),
    ]  # fmt: skip
    assert report["window"] == {"first": 22000, "last": 29999, "capacity": 8000, "free": 8000 - 6 * 9}
    assert report["free"] == [{"first": 22054, "last": 29999}]
    assert report["conflicts"] == []
    assert [(place["first"], place["free"]) for place in report["hostWindows"]] == [
        (17001, 2999 - 6 * 19),
        (21601, 399),
        (61000, 4536),
    ]
    assert set(report["claims"][0]) == {"first", "last", "purpose", "namespace", "name", "role", "engine", "revision"}


def test_on_the_pod_network_nothing_is_claimed(kvpp: Any) -> None:
    report = json.loads(kvpp("ports", "-o", "json", "-", input=text(document(networking=None))).stdout)
    assert (report["claims"], report["window"]["free"]) == ([], 8000)


def test_files_whose_pins_collide_are_refused_and_each_names_the_other(kvpp: Any) -> None:
    pinned = text(document("a", prefill__kvPort=23000), document("b", prefill__kvPort=23004))
    result = kvpp("ports", "-", input=pinned)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "needs 23004-23012 (9 ports, pin 23004), but prefill engine 0 of default/a holds 23000-23008" in result.stderr
    )
    assert kvpp("validate", "-", input=pinned).exit_code == 1


def test_a_window_that_the_files_overfill_is_refused_with_the_numbers(kvpp: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("kvPorts: {first: 22000, last: 22026}\n", "utf-8")
    result = kvpp("ports", "--config", str(config), "-", input=text(document("a"), document("b")))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "18 needed (2 blocks, the longest 9), but 22000-22026 has 9 free, the longest run 9" in result.stderr
    assert "default/a holds most of it: 18 ports" in result.stderr


def test_one_host_with_what_others_use_there(kvpp: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("reservedPorts: [9100]\n", "utf-8")
    shown = kvpp("ports", "--node", "n1", "--config", str(config), "-", input=text(document())).stdout.splitlines()
    assert shown[0] == "reserved on n1 (at most 16 NPUs):"
    reserved = {columns(line)[0] for line in shown[1 : shown.index("claimed, wherever the engines run:")]}
    assert reserved == {"20000-21600", "15000-17000", "60000-60031", "30000-32767", "32768-60999", "9100"}
    assert len(shown[shown.index("claimed, wherever the engines run:") + 1 :]) == 4
    report = json.loads(kvpp("ports", "--node", "n1", "-o", "json", "-", input=text(document())).stdout)
    assert (report["node"], report["npus"], len(report["claims"]), len(report["reserved"])) == ("n1", None, 4, 5)


def test_without_a_cluster_the_ledger_cannot_be_read(
    kvpp: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = kvpp("ports")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the port ledger can't be read" in result.stderr


SEED: dict[str, Any] = {"prefill__kvPort": 37000, "decode__kvPort": 37010}
"""The pair of the seed's guide, on one host."""


def findings(kvpp: Any, body: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    [report] = json.loads(kvpp("validate", "-o", "json", "-", input=text(body)).stdout)["documents"]
    return [
        (f["severity"], f["rule"], f["path"], f["message"]) for f in report["findings"] if f["rule"].startswith("PORT")
    ]


def test_the_seeds_pair_is_accepted_for_tp8(kvpp: Any) -> None:
    body = document(**SEED)
    assert kvpp("validate", "-", input=text(body)).exit_code == 0
    assert [(severity, rule, path) for severity, rule, path, _ in findings(kvpp, body)] == [
        ("warning", "PORT005", "spec.decode.kvPort"), ("warning", "PORT005", "spec.prefill.kvPort"),
    ]  # fmt: skip
    assert all(
        "32768-60999 (ephemeral ports)" in message and "ip_local_reserved_ports" in message
        for *_, message in findings(kvpp, body)
    )


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"accelerator": {"chip": "A3"}, "prefill__parallelism": {"tensor": 16, "expert": True}}, "37000-37016"),
        ({"prefill__parallelism": {"tensor": 8, "pipeline": 2, "expert": True}}, "37000-37016"),
    ],
    ids=["TP16", "TP8 x PP2"],
)
def test_the_seeds_pair_is_refused_where_prefill_needs_more_than_ten_ports(
    kvpp: Any, changes: dict[str, Any], holds: str
) -> None:
    body = document(**SEED, **changes)
    assert kvpp("validate", "-", input=text(body)).exit_code == 1
    [(rule, path, message)] = [(r, p, m) for severity, r, p, m in findings(kvpp, body) if severity == "error"]
    assert (rule, path) == ("PORT004", "spec.decode.kvPort")
    assert (
        f"decode engine 0 needs 37010-37018 (9 ports, pin 37010), but prefill engine 0 of default/demo holds {holds}"
        in message
    )


def test_the_seeds_pair_leaves_no_room_for_a_second_prefill_engine(kvpp: Any) -> None:
    [(_, _, path, message)] = [f for f in findings(kvpp, document(**SEED, prefill__replicas=2)) if f[0] == "error"]
    assert path == "spec.decode.kvPort"
    assert "prefill engine 1 of default/demo holds 37009-37017" in message


@pytest.mark.parametrize(
    ("networking", "severity"), [(HOST["networking"], "error"), ({}, "warning")], ids=["host network", "pod network"]
)
def test_a_pin_in_the_transports_range(kvpp: Any, networking: dict[str, Any], severity: str) -> None:
    body = document(networking=networking, prefill__kvPort=20100)
    [report] = json.loads(kvpp("validate", "-o", "json", "-", input=text(body)).stdout)["documents"]
    [finding] = [f for f in report["findings"] if f["path"] == "spec.prefill.kvPort"]
    assert (finding["severity"], "20000-20800" in finding["message"]) == (severity, True)
