"""The keys of `--additional-config` that a vLLM Ascend release takes, from its own classes.

`init_ascend_config` (vllm_ascend/ascend_config.py) strips a set of keys before the closed class AscendConfig sees the rest;
the set is a constant in its source.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

from kvpp_conformance.engine import types


def describe() -> dict[str, Any]:
    """{"fields": {key: type}, "ignored": [keys that are taken and have no effect]}."""
    module = importlib.import_module("vllm_ascend.ascend_config")
    fields: dict[str, Any] = dict(types.describe(module.AscendConfig)["fields"])
    scheduler: dict[str, Any] = types.describe(module.SchedulerConfig)
    stripped = _stripped(module)
    known = {
        "refresh": "bool", "enable_kvpp": "bool", "enable_flashcomm1": "bool",  # validate_additional_config_bool
        "scheduler_config": scheduler, "sparse_kv_offload_config": types.describe(module.SparseKVOffloadConfig),
        "dump_config_path": {"opt": "str"}, "dump_config": {"map": "any"},
    }  # fmt: skip
    legacy = {key: kind for key, kind in scheduler["fields"].items() if key in stripped}
    read = known | legacy | dict.fromkeys(("gdn_prefill_backend", "kda_prefill_backend"), "any")
    for key in stripped:
        fields.pop(key, None)
        fields[key] = read.get(key, "any")
    return {"fields": dict(sorted(fields.items())), "ignored": sorted(stripped - read.keys())}


def _stripped(module: Any) -> set[str]:
    tree = ast.parse(inspect.getsource(module.init_ascend_config))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_NON_USER_INPUT_KEYS":
            return set(ast.literal_eval(node.value))
    raise NotImplementedError("init_ascend_config has no _NON_USER_INPUT_KEYS")
