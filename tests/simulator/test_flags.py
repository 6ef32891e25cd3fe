"""The command line as the engine's own parser reads it: spellings, types, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from kvpp_engine_simulator.flags import read
from kvpp_engine_simulator.refusal import RefusedError, prepare


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["--tensor-parallel-size", "8"], {"--tensor-parallel-size": 8}),
        (["-tp", "8"], {"--tensor-parallel-size": 8}),
        (["--tensor_parallel_size=8"], {"--tensor-parallel-size": 8}),
        (["--tensor-parallel-size", "4", "-tp", "8"], {"--tensor-parallel-size": 8}),
        (["--enforce-eager", "--no-async-scheduling"], {"--enforce-eager": True, "--async-scheduling": False}),
        (["--max-num-batched-tokens", "32k"], {"--max-num-batched-tokens": 32000}),
        (["--served-model-name", "a", "b"], {"--served-model-name": ["a", "b"]}),
        (["--attention_config.indexer_kv_dtype", "fp8"], {"--attention-config": {"indexer_kv_dtype": "fp8"}}),
        (
            ["--compilation-config", '{"mode":3}', "--compilation-config.cudagraph_mode", "PIECEWISE"],
            {"--compilation-config": {"cudagraph_mode": "PIECEWISE"}},
        ),
        (["-O1"], {"--optimization-level": "1"}),
        (["--additional-config", '{"enable_kvpp": true}'], {"--additional-config": {"enable_kvpp": True}}),
    ],
)
def test_read(words: list[str], flags: dict[str, Any]) -> None:
    assert read(["/weights/m", *words], "0.30.0rc2").flags == flags


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--frobnicate", "1"], "--frobnicate is no flag of this engine version"),
        (["--tensor-parallel-size", "eight"], "--tensor-parallel-size takes an integer, not 'eight'"),
        (["--kv-transfer-config", "{"], "--kv-transfer-config: '{' is not JSON"),
        (["--kv-transfer-config", '{"kv_rol": "kv_both"}'], "has no key 'kv_rol'"),
        (["left-over"], "'left-over' belongs to no flag"),
    ],
)
def test_refused_by_the_parser(words: list[str], said: str) -> None:
    with pytest.raises(RefusedError) as caught:
        prepare(["/weights/m", *words], {})
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith("vllm serve: error: ")
    assert said in str(caught.value)


def test_an_unknown_key_of_the_additional_config_stops_the_engine() -> None:
    with pytest.raises(RefusedError, match="enable_kvppp") as caught:
        prepare(["/weights/GLM-5.2", "--additional-config", '{"enable_kvppp": true}'], {})
    assert caught.value.exit_code == 1
