"""The pod network: one block a role, never a conflict."""

from __future__ import annotations

import pytest

from kvpp_operator.ledger.pods import NoRoom, RoleBlock, pod_network_blocks
from kvpp_operator.ledger.window import Window, kv_window
from kvpp_operator.ports import PortRange

PREFILL, DECODE = RoleBlock(9), RoleBlock(16)


@pytest.mark.parametrize(
    ("roles", "window", "expected"),
    [
        ({"prefill": PREFILL, "decode": DECODE}, kv_window(8), ["22000-22008", "22009-22024"]),
        ({"prefill": RoleBlock(9, 24000), "decode": DECODE}, kv_window(8), ["24000-24008", "22000-22015"]),
        ({"prefill": PREFILL, "decode": RoleBlock(16, 22004)}, kv_window(8), ["22020-22028", "22004-22019"]),
        (
            {"prefill": RoleBlock(9, 24000), "decode": RoleBlock(16, 24100)},
            kv_window(8),
            ["24000-24008", "24100-24115"],
        ),
        (
            {"prefill": RoleBlock(9, 24000), "decode": RoleBlock(16, 24000)},
            kv_window(8),
            ["24000-24008", "24000-24015"],
        ),
        ({"prefill": PREFILL}, kv_window(64), ["26401-26409"]),
        ({"prefill": PREFILL}, kv_window(8, PortRange(36000, 36100)), ["36000-36008"]),
        ({"prefill": PREFILL}, kv_window(8, PortRange(28000, 28100), [PortRange(28004, 28010)]), ["28011-28019"]),
    ],
)
def test_blocks(roles: dict[str, RoleBlock], window: Window, expected: list[str]) -> None:
    blocks = pod_network_blocks(roles, window)
    assert isinstance(blocks, dict)
    assert expected == [str(block) for block in blocks.values()]
    assert list(roles) == list(blocks)


@pytest.mark.parametrize(
    ("roles", "window", "message"),
    [
        (
            {"decode": DECODE},
            Window(28000, 28009),
            "decode: needs a run of 16 ports; the longest of window 28000-28009 is 10",
        ),
        ({"prefill": RoleBlock(9, 65530)}, kv_window(8), "prefill: 9 ports from the pin 65530 would pass 65535"),
    ],
)
def test_no_room(roles: dict[str, RoleBlock], window: Window, message: str) -> None:
    answer = pod_network_blocks(roles, window)
    assert isinstance(answer, NoRoom)
    assert message == answer.message
