"""Command lines that the engine refuses at its start, and those that it takes: the operator's rules asked from the engine's side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kvpp_engine_simulator.document import document, profile_of
from kvpp_engine_simulator.local import decode, prefill
from kvpp_engine_simulator.refusal import RefusedError, prepare

KVPP = ("--additional-config", json.dumps({"enable_kvpp": True}))
EAGER = "--enforce-eager"
TP8 = ("--tensor-parallel-size", "8")
GLM = "/weights/GLM-5.2-W4A8C8"
OLD, NEW = {"SIMULATOR_ENGINE_VERSION": "0.28.0rc1"}, {"SIMULATOR_ENGINE_VERSION": "latest"}


def transfer(**config: Any) -> tuple[str, str]:
    return "--kv-transfer-config", json.dumps(config)


V2 = {"kv_connector": "MooncakeConnectorV2", "kv_role": "kv_producer", "kv_port": 22000}
STORE = {
    "kv_connector": "AscendStoreConnector",
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {"backend": "memcache", "lookup_rpc_port": "0", "use_layerwise": False},
}
BOTH = transfer(
    kv_connector="MultiConnector", kv_role="kv_producer", kv_connector_extra_config={"connectors": [V2, STORE]}
)
PIECEWISE = ("--compilation-config", json.dumps({"cudagraph_mode": "PIECEWISE"}))

TAKEN: dict[str, tuple[list[str], dict[str, str]]] = {
    "KVPP, eager": ([GLM, *TP8, EAGER, *KVPP], {}),
    "KVPP, piecewise": ([GLM, *TP8, *PIECEWISE, *KVPP], {}),
    "KVPP, -O1 is piecewise": ([GLM, *TP8, "--optimization-level", "1", *KVPP], {}),
    "no KVPP, full graphs": ([GLM, *TP8], {}),
    "prefill": (prefill(22000), {}),
    "decode": (decode(22100), {}),
    "PCP on the second runner": (
        ["/w/DeepSeek-V3", *TP8, "--prefill-context-parallel-size", "2", EAGER, *KVPP],
        {"VLLM_USE_V2_MODEL_RUNNER": "1"},
    ),
    "two connectors on the newest": ([GLM, *TP8, EAGER, *KVPP, *BOTH], NEW),
    "pool": ([GLM, *TP8, EAGER, *KVPP, *transfer(**STORE)], {}),
    "weights without a known name": (["/weights/my-model", *TP8, EAGER, *KVPP], {}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    arguments, env = TAKEN[name]
    engine, _ = prepare(arguments, env)
    assert engine.parallel.tensor in (1, 8)


REFUSED: dict[str, tuple[list[str], dict[str, str], str]] = {
    "graph mode left to the engine": ([GLM, *TP8, *KVPP], {}, "GRAPH001"),
    "piecewise on 0.28": ([GLM, *TP8, *PIECEWISE, *KVPP], OLD, "GRAPH002"),
    "DCP": ([GLM, *TP8, "--decode-context-parallel-size", "2", EAGER, *KVPP], {}, "PAR002"),
    "a GQA model": (["/weights/GLM-4.7", *TP8, EAGER, *KVPP], {}, "MODEL005"),
    "a split of the layers that does not add up": (
        [GLM, *TP8, "--pipeline-parallel-size", "2", EAGER, *KVPP],
        {"VLLM_PP_LAYER_PARTITION": "38,41"},
        "PAR008",
    ),
    "KVPP on decode": ([*decode(22100), *KVPP], {}, "KVPP must be disabled on the decode-only node."),
    "another connector": (
        [GLM, *TP8, EAGER, *KVPP, *transfer(kv_connector="MooncakeConnectorV1", kv_role="kv_producer")],
        {},
        "KVPP PD disaggregation requires MooncakeConnectorV2.",
    ),
    "two connectors before the newest": ([GLM, *TP8, EAGER, *KVPP, *BOTH], {}, "requires MooncakeConnectorV2."),
    "both roles on V2": (
        [GLM, *TP8, EAGER, *transfer(**{**V2, "kv_role": "kv_both"})],
        {},
        "requires exactly one KV transfer role, got 'kv_both'",
    ),
    "dynamic K": (
        [GLM, *TP8, EAGER, *KVPP, "--speculative-config",
         json.dumps({"method": "mtp", "num_speculative_tokens": 2, "num_speculative_tokens_per_batch_size": [[1, 2]]})],
        {},
        "only a fixed number of speculative tokens",
    ),
    "PCP on the first runner": ([GLM, *TP8, "--prefill-context-parallel-size", "2", EAGER], {}, "PCP (Prefill"),
    "a world that does not divide": ([GLM, *TP8, "--nnodes", "3"], {}, "must be divisible by nnodes 3"),
    "a rank out of range": ([GLM, *TP8, "--nnodes", "2", "--node-rank", "2"], {}, "less than nnodes 2"),
    "no boolean": (
        [GLM, *TP8, EAGER, "--additional-config", json.dumps({"enable_kvpp": "sure"})],
        {},
        "additional_config.enable_kvpp must be a boolean",
    ),
    "told to refuse": ([GLM], {"SIMULATOR_FAULT": "refuse", "SIMULATOR_FAULT_TEXT": "no device"}, "no device"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    arguments, env, words = REFUSED[name]
    with pytest.raises(RefusedError) as caught:
        prepare(arguments, env)
    assert caught.value.exit_code == 1
    assert words in str(caught.value)
    assert str(caught.value).startswith("ValueError: ")


def test_settings_that_make_no_sense_name_their_variable() -> None:
    with pytest.raises(RefusedError, match="SIMULATOR_LOAD_SECONDS=soon is no number"):
        prepare([GLM], {"SIMULATOR_LOAD_SECONDS": "soon"})
    with pytest.raises(RefusedError, match="SIMULATOR_FAULT=fire: known are none, refuse"):
        prepare([GLM], {"SIMULATOR_FAULT": "fire"})


@pytest.mark.parametrize(
    ("model", "served", "profile"),
    [
        ("/weights/GLM-5.2-W4A8C8", (), "GLM-5.2"),
        ("/weights/GLM-5.2-W4A8C8/", (), "GLM-5.2"),
        ("/weights/GLM-5-W8A8", (), "GLM-5"),
        ("/mnt/model", ("--served-model-name", "deepseek-v3.1"), "DeepSeek-V3.1"),
        ("/mnt/model", (), ""),
    ],
)
def test_the_model_is_known_by_its_name(model: str, served: tuple[str, ...], profile: str) -> None:
    engine, _ = prepare([model, *served], {})
    assert profile_of(engine) == profile


def test_a_command_line_read_backwards() -> None:
    engine, settings = prepare(prefill(22000, "--attention-config", json.dumps({"indexer_kv_dtype": "fp8"})), {})
    assert document(engine, settings)["spec"] == {
        "model": {"profile": "GLM-5.2", "source": {"hostPath": {"path": "/weights"}}, "maxModelLen": 131072},
        "engine": {"version": "0.30.0rc2"},
        "accelerator": {"chip": "950DT", "devicesPerNode": 8},
        "kvpp": {"enabled": True},
        "kvCache": {"main": "Auto", "indexer": "C8"},
        "prefill": {
            "parallelism": {
                "tensor": 8, "pipeline": 1, "data": 1, "prefillContext": 1, "decodeContext": 1, "expert": False,
            },
            "graphMode": "Eager",
            "additionalConfig": {},
        },
    }  # fmt: skip
