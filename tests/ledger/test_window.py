"""Windows: free runs, the reserved ranges in them, and the capacity that the documentation promises."""

from __future__ import annotations

import pytest

from kvpp_operator.ledger.window import DEFAULT, Window, host_windows, kv_window
from kvpp_operator.ports import PortRange, host_block_length, kv_block_length, reserved_ranges


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], ["100-109", "112-119"]),
        (["100-104"], ["105-109", "112-119"]),
        (["90-99", "120-130"], ["100-109", "112-119"]),
        (["90-100", "119-130"], ["101-109", "112-118"]),
        (["103-105", "104-114", "105"], ["100-102", "115-119"]),
        (["1-65535"], []),
    ],
)
def test_free_runs(taken: list[str], expected: list[str]) -> None:
    window = Window(100, 119, (PortRange(110, 111),))
    assert expected == [str(run) for run in window.free_runs(map(PortRange.parse, taken))]


def test_the_default_window_has_eight_thousand_ports() -> None:
    capacity = 8000
    assert capacity == kv_window(8).capacity == kv_window(16).capacity


@pytest.mark.parametrize("npus", [8, 16])
def test_no_window_enters_a_reserved_range(npus: int) -> None:
    runs = [run for window in (kv_window(npus), *host_windows(npus)) for run in window.free_runs()]
    assert [(str(run), row.name) for run in runs for row in reserved_ranges(npus) if run.overlaps(row.block)] == []


def test_a_transport_of_many_npus_cuts_the_window() -> None:
    """Nodes of 64 NPUs: the transport reaches 26400."""
    runs = kv_window(64).free_runs()
    assert [PortRange(26401, 29999)] == list(runs)


def test_a_users_window_may_lie_in_the_ephemeral_range_but_not_in_the_transports() -> None:
    expected = [["36000-36999"], ["20801-20999"]]
    windows = (kv_window(8, PortRange(36000, 36999)), kv_window(8, PortRange(20500, 20999)))
    assert expected == [[str(run) for run in window.free_runs()] for window in windows]


def test_host_windows_are_apart_and_reach_into_the_kv_window_last() -> None:
    assert [str(window) for window in host_windows(8)] == ["17001-19999", "20801-21999", "61000-65535", "22000-29999"]
    assert [str(window) for window in host_windows(20)] == ["17001-19999", "61000-65535", "22000-29999"]
    assert (host_windows(8)[-1].block, host_windows(8)[-1].downward) == (DEFAULT, True)


@pytest.mark.parametrize(("tensor", "engines"), [(8, 590), (2, 750)])
def test_the_promised_capacity(tensor: int, engines: int) -> None:
    """`ledger.window` and the docs name these numbers."""
    kv, host = kv_block_length(1, 1, 1, tensor), host_block_length(8)
    outside = sum(run.length // host for window in host_windows(8)[:-1] for run in window.free_runs())
    inside = (kv_window(8).capacity - outside * kv) // (kv + host)
    assert engines == pytest.approx(outside + inside, rel=0.02)
