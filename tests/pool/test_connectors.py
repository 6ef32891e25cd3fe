"""The seed guide's three examples come out with the same keys and values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from specs import DISAGGREGATED, UNIFIED

from kvpp_operator.plan.model import Plan
from kvpp_operator.render.commands import commands

SEED = Path(__file__).parent / "seed"
LATEST = {"engine": {"version": "latest"}}
MANAGED = {"backend": "Memcache", "role": "Producer"}

FORMS = {
    "memcache.json": (UNIFIED, MANAGED, "unified", {}),
    "mooncake-layerwise.json": (
        UNIFIED | LATEST,
        {"backend": "Mooncake", "mooncake": {"layerwise": {}}},
        "unified",
        {},
    ),
    "multi.json": (DISAGGREGATED | LATEST, MANAGED, "prefill", {"prefill__kvPort": 37000}),
}


def transfer(plan: Plan, role: str) -> Any:
    argv = next(command.argv for command in commands(plan) if command.role == role)
    return json.loads(argv[argv.index("--kv-transfer-config") + 1])


@pytest.mark.parametrize("example", FORMS)
def test_the_seeds_example(example: str, plan_of: Callable[..., Plan], pooled: Callable[..., Any]) -> None:
    spec, pooling, role, changes = FORMS[example]
    assert transfer(plan_of(pooled(spec, pooling, **changes)), role) == json.loads((SEED / example).read_text())


def test_the_distance_of_layers_only_when_asked(plan_of: Callable[..., Plan], pooled: Callable[..., Any]) -> None:
    asked = {"backend": "Mooncake", "mooncake": {"layerwise": {"prefetchLayers": 2}}}
    extra = transfer(plan_of(pooled(UNIFIED | LATEST, asked)), "unified")["kv_connector_extra_config"]
    assert extra["layerwise_prefetch_layers"] == 2


def test_layerwise_under_multi_connector(plan_of: Callable[..., Plan], pooled: Callable[..., Any]) -> None:
    spec = DISAGGREGATED | LATEST | {"decode": {"parallelism": {"tensor": 8, "expert": True}}}
    config = transfer(plan_of(pooled(spec, {"backend": "Mooncake", "mooncake": {"layerwise": {}}})), "prefill")
    assert config["kv_role"] == "kv_producer"
    assert [child["kv_role"] for child in config["kv_connector_extra_config"]["connectors"]] == [
        "kv_producer",
        "kv_both",
    ]


def test_whole_blocks_of_mooncake_without_kvpp(plan_of: Callable[..., Plan], pooled: Callable[..., Any]) -> None:
    config = transfer(plan_of(pooled(UNIFIED, {"backend": "Mooncake"}, kvpp__enabled=False)), "unified")
    assert config == {
        "kv_connector": "AscendStoreConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"backend": "mooncake", "lookup_rpc_port": "0", "use_layerwise": False},
    }


def test_decode_takes_no_part(plan_of: Callable[..., Plan], pooled: Callable[..., Any]) -> None:
    config = transfer(plan_of(pooled(DISAGGREGATED | LATEST, MANAGED)), "decode")
    assert config["kv_connector"] == "MooncakeConnectorV2"
    assert config["kv_role"] == "kv_consumer"
