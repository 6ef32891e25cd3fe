"""Stand-ins for the three things that only a machine with NPUs has, so that vLLM Ascend's own plugin can be imported.

- `torch_npu` and `torch.npu`: the driver's binding. Any attribute exists and does nothing.
- the device type "npu" of torch, which torch_npu registers by exactly this call.
- `vllm_ascend._build_info`: written when the package is built; names the device family (device/device_config.py).

Nothing of vLLM Ascend is replaced: its patches, argument additions and checks are the release's own files.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

FAMILIES = {"A2": "A2", "A3": "A3", "950DT": "A5", "950PR": "A5"}
"""Chip as the custom resource names it -> vLLM Ascend's device family (device/hardware.py)."""


class _Absent(MetaPathFinder, Loader):
    """Finds `torch_npu`, all below it, and the build information."""

    def __init__(self, family: str) -> None:
        self.family = family

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname.partition(".")[0] == "torch_npu" or fullname == "vllm_ascend._build_info":
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "vllm_ascend._build_info":
            module.__device_type__ = self.family  # type: ignore[attr-defined]
        else:
            module.__getattr__ = lambda name: MagicMock(name=name)  # type: ignore[method-assign]


def pretend(source: str, chip: str) -> None:
    """Make the plugin under `source` importable and seen as installed; `chip` is a key of FAMILIES.

    Python finds the entry points of the plugin in its `.egg-info` folder, so vLLM loads it by itself.
    """
    sys.meta_path.insert(0, _Absent(FAMILIES[chip]))
    sys.path.insert(0, source)
    torch = importlib.import_module("torch")
    torch.utils.rename_privateuse1_backend("npu")
    torch.npu = MagicMock(name="torch.npu")  # type: ignore[attr-defined]
    torch.distributed.is_hccl_available = lambda: True  # torch_npu adds it
