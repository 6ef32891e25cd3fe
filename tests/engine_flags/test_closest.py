"""What is proposed for a flag that does not exist: a likely slip, or nothing."""

from __future__ import annotations

import pytest

from kvpp_operator.engine_flags.problems import closest

ADDITIONAL = ("xlite_graph_config", "scheduler_config", "enable_kvpp", "finegrained_tp_config")
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


@pytest.mark.parametrize(
    ("wrong", "proposed"),
    [
        ("torchair_graph_config", None), ("ascend_scheduler_config", None), ("enable_kv_pp", "enable_kvpp"), ("xlit_graph_config", "xlite_graph_config"),
        ("finegrained_tp", "finegrained_tp_config"),
    ],
)  # fmt: skip
def test_words_in_common_make_no_slip(wrong: str, proposed: str | None) -> None:
    """Keys of older releases: their likes of today are other features, which nobody asked for."""
    assert next(iter(closest(wrong, ADDITIONAL)), None) == proposed
