"""Pins are judged by where they lie and on which network."""

from __future__ import annotations

import pytest

from kvpp_operator.ledger.pins import judge_pin
from kvpp_operator.ports import PortRange, reserved_ranges

RESERVED = reserved_ranges(8, [PortRange(28000, 28010)])


@pytest.mark.parametrize(
    ("pin", "on_host", "on_pods"),
    [
        (22000, [], []),
        (20000, ["error"], ["warning"]),
        (20800, ["error"], ["warning"]),
        (20801, [], []),
        (19991, [], []),
        (19992, ["error"], ["warning"]),
        (16666, ["error"], ["warning"]),
        (28005, ["error"], ["warning"]),
        (30100, ["warning"], ["warning"]),
        (37000, ["warning"], ["warning"]),
        (60000, ["error", "warning"], ["warning", "warning"]),
        (61000, [], []),
    ],
)
def test_severity(pin: int, on_host: list[str], on_pods: list[str]) -> None:
    block = PortRange.of(pin, 9)
    assert on_host == [verdict.severity for verdict in judge_pin(block, RESERVED, host_network=True)]
    assert on_pods == [verdict.severity for verdict in judge_pin(block, RESERVED, host_network=False)]


@pytest.mark.parametrize("pin", [30100, 37000])
def test_the_warning_names_the_setting_that_helps(pin: int) -> None:
    verdicts = judge_pin(PortRange.of(pin, 9), RESERVED, host_network=True)
    assert ["net.ipv4.ip_local_reserved_ports" in verdict.message for verdict in verdicts] == [True]
