"""The engine's start-up up to its complete configuration: everything that is checked before a weight is read.

After the parser come `vllm serve`'s own checks, every configuration class, the NPU platform's check of them together
(with the KVPP check on the real objects) and the closed model of `additional_config`. No device is touched.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvpp_conformance.engine import models
from kvpp_conformance.engine.commandline import CommandLine, Refused

_ENDS = ("run_server", "run_headless", "run_multi_api_server", "run_dp_supervisor")
"""What vllm/entrypoints/cli/serve.py calls once its own checks are through."""


class Start:
    """Configures engines, one command after the other."""

    def __init__(self, line: CommandLine, folder: Path) -> None:
        self.line, self.folder = line, folder
        # vLLM asks a model class what it can do in a process of its own, which would lack the stand-ins for the hardware.
        registry: Any = importlib.import_module("vllm.model_executor.models.registry")
        registry._run_in_subprocess = _here  # noqa: SLF001
        # vLLM believes in Triton only with a driver for it; the images have triton-ascend (launch facts 9).
        config: Any = importlib.import_module("vllm.config.vllm")
        config.HAS_TRITON = True

    def can_judge(self, arguments: argparse.Namespace) -> bool:
        """Not where a draft model's own configuration is read: there is none to read."""
        return not ((arguments.speculative_config or {}).get("model") or getattr(arguments, "spec_model", None))

    def check(self, arguments: argparse.Namespace, model: dict[str, Any]) -> None:
        """Raise Refused with the engine's words when it would not get to loading weights."""
        chosen = copy.copy(arguments)
        chosen.model_tag = str(self._weights(model))
        try:
            with self._caught_before_start() as ended:
                self.line.serve.cmd(chosen)
            self._configure(chosen, headless=ended == ["run_headless"])
        except Refused:
            raise
        except SystemExit as end:
            raise Refused(f"ends with status {end.code}") from end
        except Exception as error:
            raise Refused(_message(error)) from error

    def _configure(self, chosen: argparse.Namespace, *, headless: bool) -> None:
        engine = importlib.import_module("vllm").AsyncEngineArgs.from_cli_args(chosen)
        usage = importlib.import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
        engine.create_engine_config(usage_context=usage, headless=headless)

    @contextlib.contextmanager
    def _caught_before_start(self) -> Iterator[list[str]]:
        """Let `vllm serve` run up to the call that would start processes; yields the name of that call."""
        module: Any = self.line.module
        ended: list[str] = []
        originals = {name: getattr(module, name) for name in (*_ENDS, "uvloop")}
        for name in _ENDS:
            setattr(module, name, _End(name, ended))
        module.uvloop = _Loop
        try:
            yield ended
        finally:
            for name, original in originals.items():
                setattr(module, name, original)

    def _weights(self, model: dict[str, Any]) -> Path:
        """A folder with configurations like the model's, and no weights."""
        config = models.config(model)
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
        folder: Path = self.folder / digest
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in {"config.json": config, **models.FILES}.items():
            (folder / name).write_text(json.dumps(content))
        return folder


def _here(act: Callable[[], Any]) -> Any:
    return act()


class _End:
    """In place of a call that would start processes: writes down that it was reached."""

    def __init__(self, name: str, reached: list[str]) -> None:
        self.name, self.reached = name, reached

    def __call__(self, _arguments: argparse.Namespace) -> None:
        self.reached.append(self.name)


class _Loop:
    """In place of uvloop: what it would run has been written down already."""

    @staticmethod
    def run(_nothing: None) -> None: ...


def _message(error: Exception) -> str:
    """The engine's words without pydantic's frame around them; the first of several."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").strip()
        place = ".".join(map(str, first["loc"]))
        said = said or "an assertion without words"
        return f"{place}: {said}" if place else said
    return str(error).strip() or type(error).__name__
