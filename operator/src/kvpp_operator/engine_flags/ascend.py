"""What vLLM Ascend changes in vLLM's command line: values it adds, and one that it takes away.

The plugin replaces types before the arguments are read (its general plugins are loaded by `AsyncEngineArgs.add_cli_args`,
vllm/engine/arg_utils.py). The list is checked against the real parser with the real plugin (`python -m kvpp_conformance
generate` refuses to write a catalogue when it is not complete).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Addition:
    """Values that a release takes for a flag, or for a key of its JSON, where plain vLLM does not."""

    flag: str
    path: tuple[str, ...]
    values: tuple[str, ...]
    source: str
    withdrawn: tuple[str, ...] = ()
    """Values of plain vLLM that are gone: the plugin's list is an older copy."""


_CACHE_DTYPE = "vllm_ascend/patch/platform/patch_kv_cache_dtype.py and platform.py::pre_register_and_update"
_INDEXER = "vllm_ascend/patch/platform/patch_indexer_kv_dtype.py"
_DEVICE = "vllm/config/multimodal.py takes the platform's device type; vllm_ascend/platform.py names it npu"
_EPLB = "vllm_ascend/patch/platform/patch_eplb.py"

_INDEXER_INT8 = Addition("--attention-config", ("indexer_kv_dtype",), ("int8",), _INDEXER)
_ALWAYS = (Addition("--mm-processor-device", (), ("npu",), _DEVICE),)
_SINCE_0_30 = (
    *_ALWAYS,
    Addition("--kv-cache-dtype", (), ("int8", "mxfp8"), _CACHE_DTYPE, withdrawn=("nvfp4_ds_mla",)),
    _INDEXER_INT8,
    Addition("--eplb-config", ("policy",), ("stair",), _EPLB),
    Addition("--eplb-config", ("communicator",), ("hixl",), _EPLB),
)

ADDITIONS: dict[str, tuple[Addition, ...]] = {
    "0.28.0rc1": _ALWAYS,
    "0.29.0rc1": (*_ALWAYS, Addition("--kv-cache-dtype", (), ("int8",), _CACHE_DTYPE), _INDEXER_INT8),
    "0.30.0rc1": _SINCE_0_30,
    "0.30.0rc2": _SINCE_0_30,
}
"""By release of vLLM Ascend."""
