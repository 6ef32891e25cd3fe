"""What is proposed for a flag that does not exist: a likely slip, or nothing."""

from __future__ import annotations

import pytest

from kvpp_operator.engine_flags.problems import closest

KNOWN = ("--seed", "--enable-log-requests", "--return-sampling-mask", "-asc", "--safetensors-load-strategy")


@pytest.mark.parametrize(
    ("wrong", "proposed"),
    [
        ("--sed", "--seed"), ("--disable-log-requests", "--enable-log-requests"), ("--safetensor-load-strategy", "--safetensors-load-strategy"),
        ("--task", None), ("--rope-scaling", None), ("-as", "-asc"),
    ],
)  # fmt: skip
def test_a_slip_is_recognised_and_other_words_are_not(wrong: str, proposed: str | None) -> None:
    assert next(iter(closest(wrong, KNOWN)), None) == proposed
