"""`--additional-config` is a closed set of keys."""

from __future__ import annotations

from typing import Any

import pytest

from kvpp_operator.engine_flags import catalogue, check_additional

CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str, str]]]] = {
    "what the seed guide uses": (
        {
            "enable_kvpp": True, "enable_shared_expert_dp": False, "weight_nz_mode": 2,
            "ascend_compilation_config": {"fuse_norm_quant": False, "enable_npugraph_ex": False},
        },
        [],
    ),
    "booleans in other words": ({"enable_kvpp": "true", "enable_cpu_binding": 0}, []),
    "a typo": ({"enable_kvp": True}, [("enable_kvp", "unknown-key", "enable_kvpp")]),
    "a typo further in": ({"scheduler_config": {"recompute_scheduler": 1}},
        [("scheduler_config.recompute_scheduler", "unknown-key", "recompute_scheduler_enable")]),
    "a deprecated place": ({"recompute_scheduler_enable": True}, []),
    "not a boolean": ({"enable_kvpp": "maybe"}, [("enable_kvpp", "wrong-type", "")]),
    "not an object": ({"eplb_config": []}, [("eplb_config", "wrong-type", "")]),
    "computed by the engine": ({"pd_tp_ratio": 2}, [("pd_tp_ratio", "unexpected-value", "")]),
}  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), CASES.values(), ids=CASES)
def test_keys_are_judged(config: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    found = check_additional(config, catalogue("0.30.0rc2"))

    assert [(".".join(one.path), one.problem.kind, (*one.problem.closest, "")[0]) for one in found] == expected


def test_a_key_may_be_newer_than_the_release() -> None:
    config = {"c8_enable_reshape_optim": True}

    assert [one.stops_the_engine for one in check_additional(config, catalogue("0.28.0rc1"))] == [True]
    assert [*check_additional(config, catalogue("0.30.0rc2"))] == []
