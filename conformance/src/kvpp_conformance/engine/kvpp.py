"""The release's own KVPP check, executed from its source file on stand-ins for the configuration objects.

`KVPPConfig` (vllm_ascend/ascend_config.py, 0.28.0rc1 and later) needs no NPU. What it reads of the model comes from the
request, as facts: an attention that is not MLA is refused by the class, not by us.
"""

from __future__ import annotations

import argparse
import importlib
from types import SimpleNamespace
from typing import Any

from kvpp_conformance.engine.commandline import Refused

MLA = ("MLA", "SFA")
"""Attention classes for which vLLM's `use_mla` is true: sparse attention is built on the latent cache (launch facts 1.5)."""


def check(arguments: argparse.Namespace, model: dict[str, Any], env: dict[str, str]) -> int:
    """The size of the group that shares a KV cache (1: KVPP is off). Raises Refused with the engine's words.

    `model`: {"attention": "MLA" | "SFA" | "GQA" | "MQA" | "Hybrid"}; `env`: what the process would have.
    """
    kvpp_class = importlib.import_module("vllm_ascend.ascend_config").KVPPConfig
    config = _stand_in(arguments, model, env)
    try:
        kvpp = kvpp_class.from_vllm_config(config)
        if kvpp.size > 1:  # as platform.py's _validate_parallel_config does
            kvpp.validate(config)
    except ValueError as error:
        raise Refused(str(error)) from error
    return int(kvpp.size)


def _stand_in(arguments: argparse.Namespace, model: dict[str, Any], env: dict[str, str]) -> SimpleNamespace:
    """As much of a VllmConfig as the check reads; parsed parts are the engine's own objects."""
    attention = model.get("attention", "")
    return SimpleNamespace(
        additional_config=arguments.additional_config,
        parallel_config=SimpleNamespace(
            tensor_parallel_size=arguments.tensor_parallel_size,
            prefill_context_parallel_size=arguments.prefill_context_parallel_size,
            decode_context_parallel_size=arguments.decode_context_parallel_size,
        ),
        kv_transfer_config=arguments.kv_transfer_config,
        model_config=SimpleNamespace(
            enforce_eager=arguments.enforce_eager,
            use_mla=attention in MLA and env.get("VLLM_MLA_DISABLE", "0") in ("", "0"),
            is_hybrid=attention == "Hybrid",
        ),
        compilation_config=SimpleNamespace(cudagraph_mode=_graph_mode(arguments)),
        speculative_config=_speculative(arguments),
    )


def _graph_mode(arguments: argparse.Namespace) -> Any:
    """What vLLM would choose: the explicit mode, else the optimization level's (vllm/config/vllm.py)."""
    if (chosen := arguments.compilation_config.cudagraph_mode) is not None:
        return chosen
    config = importlib.import_module("vllm.config.vllm")
    try:
        level = config.OptimizationLevel(int(arguments.optimization_level))  # a string, when it was given
    except ValueError as error:
        raise Refused(str(error)) from error
    return config.OPTIMIZATION_LEVEL_TO_CONFIG[level]["compilation_config"]["cudagraph_mode"]


def _speculative(arguments: argparse.Namespace) -> Any:
    """The draft's method as SpeculativeConfig would resolve it: every model's own MTP name becomes `mtp`."""
    wanted = dict(arguments.speculative_config or {})
    for key, flag in (("method", "spec_method"), ("num_speculative_tokens", "spec_tokens"), ("model", "spec_model")):
        if (value := getattr(arguments, flag, None)) is not None:
            wanted[key] = value
    if not wanted:
        return None
    speculative = importlib.import_module("vllm.config.speculative")
    if wanted.get("method") in speculative.get_args(speculative.MTPModelTypes):
        wanted["method"] = "mtp"
    unset = dict.fromkeys(("method", "num_speculative_tokens_per_batch_size"))
    return SimpleNamespace(**{**unset, **wanted})
