"""Port arithmetic: tables from the launch facts. Wrong here means bound twice on a host."""

from __future__ import annotations

import pytest

from kvpp_operator import ports
from kvpp_operator.ports import PortRange


@pytest.mark.parametrize(
    ("value", "expected"),
    [(8000, (8000, 8000)), ("8000", (8000, 8000)), ("28040-28043", (28040, 28043)), ("1-65535", (1, 65535))],
)
def test_a_range_is_read_as_users_write_it(value: int | str, expected: tuple[int, int]) -> None:
    assert PortRange(*expected) == PortRange.parse(value)


@pytest.mark.parametrize("value", ["", "-", "8000-", "-8000", "a", "1-2-3", "9-8", 0, 65536, "1-70000", -5])
def test_what_is_no_range_is_refused(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|no port range"):
        PortRange.parse(value)


def test_a_range_includes_both_ends() -> None:
    block = PortRange.of(22000, 9)
    ends, members, texts = (22000, 22008, 9, 9), [False, True, True, False], ["22000-22008", "8000"]
    assert ends == (block.first, block.last, block.length, len(block))
    assert members == [port in block for port in (21999, 22000, 22008, 22009)]
    assert texts == [str(block), str(PortRange(8000, 8000))]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((21990, 21999), False),
        ((21990, 22000), True),
        ((22003, 22004), True),
        ((22008, 22010), True),
        ((22009, 22010), False),
    ],
)
def test_overlap_counts_the_ends(other: tuple[int, int], expected: bool) -> None:  # noqa: FBT001
    block = PortRange(22000, 22008)
    assert [expected, expected] == [block.overlaps(PortRange(*other)), PortRange(*other).overlaps(block)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # data, pipeline, prefill context, tensor → N + DP
        ((1, 1, 1, 8), 9),  # the seed's single-node prefill
        ((8, 1, 1, 1), 16),  # the seed-like decode DP8 TP1
        ((1, 2, 1, 8), 17),  # the seed's TP8 with PP2
        ((1, 2, 1, 16), 33),  # GLM5.3 guide: TP16 PP2
        ((16, 1, 1, 2), 48),  # GLM5.3 guide: DP16 TP2
        ((1, 1, 2, 4), 9),  # PCP2 TP4
        ((2, 1, 2, 4), 18),
        ((1, 1, 1, 1), 2),
    ],
)
def test_a_kv_block_has_a_number_a_rank_and_a_control_port_a_replica(
    sizes: tuple[int, int, int, int], expected: int
) -> None:
    assert expected == ports.kv_block_length(*sizes)


def test_control_ports_follow_the_rank_numbers() -> None:
    """V2 binds kv_port + N + dp_rank: 37008 for the seed's prefill (launch facts 2.1)."""
    assert PortRange(37008, 37008) == ports.kv_control_ports(PortRange(37000, 37008), data=1)
    assert PortRange(37018, 37025) == ports.kv_control_ports(PortRange.of(37010, 16), data=8)


@pytest.mark.parametrize(("npus", "last"), [(8, 20800), (16, 21600), (1, 20100), (64, 26400)])
def test_the_transport_takes_a_hundred_ports_an_npu_and_the_upper_end(npus: int, last: int) -> None:
    assert PortRange(20000, last) == ports.transport_range(npus)


def test_reserved_ranges_are_named_and_sourced() -> None:
    rows = ports.reserved_ranges(8, [PortRange.parse("28040-28043")])
    expected = {
        "Ascend transport": ("20000-20800", "error", "warning"),
        "Mooncake RPC": ("15000-17000", "error", "warning"),
        "HCCL default": ("60000-60031", "error", "warning"),
        "NodePorts": ("30000-32767", "warning", "warning"),
        "ephemeral ports": ("32768-60999", "warning", "warning"),
        "reserved ports": ("28040-28043", "error", "warning"),
    }
    assert expected == {row.name: (str(row.block), row.on_host, row.on_pods) for row in rows}
    assert all(row.source and row.harm for row in rows)


@pytest.mark.parametrize(("npus", "local_services", "expected"), [(8, 0, 19), (16, 0, 19), (8, 8, 27), (64, 0, 67)])
def test_a_host_block_holds_all_that_an_engine_is_told_to_bind(npus: int, local_services: int, expected: int) -> None:
    assert expected == ports.host_block_length(npus, local_services)


@pytest.mark.parametrize(
    ("block", "layout", "expected"),
    [
        ((17001, 27), ports.host_layout(8, local_services=8),
         {"hccl": 17001, "local_service": 17017, "dp_rpc": 17025, "torch_master": 17026, "api": 17027}),
        ((17001, 19), ports.host_layout(8), {"hccl": 17001, "dp_rpc": 17017, "torch_master": 17018, "api": 17019}),
        # Claimed before the nodes had 64 NPUs: the engine runs on with what it has.
        ((17001, 19), ports.host_layout(64), {"hccl": 17001, "dp_rpc": 17017, "torch_master": 17018, "api": 17019}),
        ((17001, 3), ports.service_layout("meta-service"), {"rpc": 17001, "store": 17002, "http": 17003}),
    ],
)  # fmt: skip
def test_parts_of_a_host_block_stand_one_behind_the_other(
    block: tuple[int, int], layout: dict[str, int], expected: dict[str, int]
) -> None:
    assert expected == ports.starts(PortRange.of(*block), layout)


def test_every_port_that_is_told_is_part_of_a_block_and_every_other_is_picked_outside() -> None:
    """A new row of the table must say in which block it lies, or from which range the engine picks it."""
    parts = {"kv", *ports.host_layout(8, local_services=8)}
    assert parts == {port.part for port in ports.ENGINE_PORTS if port.part}
    for port in (port for port in ports.ENGINE_PORTS if port.part is None):
        assert port.carrier.startswith("the engine picks") or "NPU's address" in port.protocol


def test_services_have_blocks_and_the_known_clash_is_visible() -> None:
    layouts = {service: ports.service_layout(service) for service in ports.SERVICE_PORTS}
    expected = {
        "router": {"http": 1},
        "meta-service": {"rpc": 1, "store": 1, "http": 1},
        "mooncake-master": {"rpc": 1, "metrics": 1},
    }
    assert expected == layouts
    defaults = {port.default for rows in ports.SERVICE_PORTS.values() for port in rows}
    assert defaults == {5000, 6000, 8000, 50088, 9003}
    api = next(port.default for port in ports.ENGINE_PORTS if port.part == "api")
    assert api in defaults  # MetaService and router both default to the engines' API port: planned away on a host
