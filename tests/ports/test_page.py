"""docs/ports.md says what the code does: its tables, its numbers and its example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import specs
import yaml
from click.testing import CliRunner

from kvpp_operator.cli.app import app
from kvpp_operator.ledger.window import HIGH, LOW, host_windows, kv_window
from kvpp_operator.ports import (
    ENGINE_PORTS,
    RESERVED,
    BoundPort,
    host_block_length,
    kv_block_length,
    transport_range,
)

PAGE = (specs.ROOT / "docs" / "ports.md").read_text("utf-8")


def rows(head: str) -> list[list[str]]:
    """Cells of the table with that head, without its head."""
    lines = PAGE.splitlines()
    start = lines.index(f"| {head} |") + 2
    found: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            return found
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def dashed(block: object) -> str:
    return str(block).replace("-", "–")


def test_what_an_engine_binds() -> None:
    def row(port: BoundPort) -> list[str]:
        return [port.name, port.count, port.bound_by, str(port.default or "-"), port.part or "-", port.carrier]

    assert rows("what | how many | on | default | in block | told by") == [row(port) for port in ENGINE_PORTS]


def test_lengths_of_kv_blocks() -> None:
    table = [[int(cell) for cell in row] for row in rows("DP | PP | PCP | TP | ports")]
    assert [row[4] for row in table] == [kv_block_length(*row[:4]) for row in table]


def test_ranges_of_others() -> None:
    listed = {
        row[0]: (row[1], row[2], row[3])
        for row in rows("range | who | a pin there, host network | a pin there, pod network")
    }
    expected = {dashed(row.block): (row.name, row.on_host, row.on_pods) for row in RESERVED}
    transport = f"Ascend transport of 8 NPUs; {dashed(transport_range(16))} of 16"
    assert listed == {
        **expected, dashed(transport_range(8)): (transport, "error", "warning"),
        "what you list": ("`reservedPorts` of the operator's configuration or of the deployment", "error", "warning"),
    }  # fmt: skip


def test_where_blocks_lie() -> None:
    eight, sixteen = host_windows(8), host_windows(16)
    assert [row[0] for row in rows("range | used for")] == [dashed(one) for one in (LOW, eight[1], kv_window(8), HIGH)]
    assert dashed(sixteen[1]) in rows("range | used for")[1][1]


def test_capacity() -> None:
    """Engines that fit when each takes a kv block and a host block: both come out of the same ports in the end."""
    ports = kv_window(8).capacity + sum(place.capacity for place in host_windows(8) if not place.downward)
    for text, length in (("about 590 engines of TP8", 9), ("750 of TP2", 3)):
        engines = int(re.findall(r"\d+", text)[0])
        assert text in PAGE
        assert abs(ports // (length + host_block_length(8)) - engines) <= engines * 0.02
    assert "8,000 kv ports" in PAGE
    assert (kv_window(8).capacity, host_block_length(8), host_block_length(16)) == (8000, 19, 19)
    assert "That is 19 ports on nodes of 8 or 16 NPUs." in PAGE


def test_the_guides_pair() -> None:
    assert "TP8 (37000–37008)" in PAGE
    assert f"37000–{37000 + kv_block_length(1, 1, 1, 16) - 1}" in PAGE
    assert kv_block_length(1, 1, 1, 16) == kv_block_length(1, 2, 1, 8)


def test_the_example(tmp_path: Path) -> None:
    """As it comes out of the command; only the revisions' hashes may differ."""
    role: dict[str, Any] = {"parallelism": {"tensor": 8, "expert": True}}
    spec = {
        **specs.DISAGGREGATED,
        "prefill": role,
        "decode": role,
        "networking": {"hostNetwork": True, "interface": "eth0"},
    }
    folder = tmp_path / "deploy"
    folder.mkdir()
    for name in ("glm", "deepseek"):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(specs.deployment(spec, name=name)), "utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps({"kvPorts": {"first": 22000, "last": 22079}, "reservedPorts": ["22040-22043"]}), "utf-8"
    )
    result = CliRunner().invoke(app, ["ports", "--config", str(config), str(folder)])
    [shown] = re.findall(r"```console\n(PORTS .*?)```", PAGE, re.DOTALL)
    assert without_hashes(shown) == without_hashes(result.stdout)


def without_hashes(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{10}\b", "HASH", text)
