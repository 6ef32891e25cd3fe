"""A running engine release: one process that answers many requests."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kvpp_conformance import environment
from kvpp_conformance.engine.__main__ import MARK
from kvpp_conformance.releases import PAIRS

SOURCES = Path(__file__).resolve().parents[1]
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore",
    "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip


class Engine:
    """`with Engine(release) as engine: engine.ask([...])`. Starting takes 20 s or more: it imports torch and vLLM.

    `plain`: vLLM alone. Raises EnvironmentProblem when the process ends early, with the end of what it printed.
    """

    def __init__(
        self, release: str, *, chip: str = "A3", plain: bool = False, say: environment.Say = lambda _: None
    ) -> None:
        python = environment.ensure_vllm(PAIRS[release], say)
        source = environment.ensure_ascend(release, say)
        self.release = release
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by __exit__)
        models = environment.root() / "models"
        command = [
            str(python),
            "-m",
            "kvpp_conformance.engine",
            "--source",
            str(source),
            "--folder",
            str(models),
            "--chip",
            chip,
        ]
        say(f"starting vLLM {PAIRS[release]}" + ("" if plain else f" with vLLM Ascend {release}"))
        self._process = subprocess.Popen(  # noqa: S603
            [*command, *(["--plain"] if plain else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=_environment(plain=plain),
        )  # fmt: skip
        self._answer()

    def ask(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """One answer a request, in order (engine/__main__.py has the shapes)."""
        for request in requests:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            yield self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return answer
        self._process.wait()
        self._log.seek(0)
        end = "".join(self._log.readlines()[-15:])
        raise environment.EnvironmentProblem(
            f"vLLM Ascend {self.release} ended with {self._process.returncode}:\n{end}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _environment(*, plain: bool) -> dict[str, str]:
    """Ours, without what would change the engine's mind."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "ASCEND_", "HCCL_"))
    }
    place = {"PYTHONPATH": str(SOURCES), "VLLM_CACHE_ROOT": str(environment.root() / "vllm-cache")}
    return inherited | _QUIET | place | ({"VLLM_TARGET_DEVICE": "cpu"} if plain else {})
