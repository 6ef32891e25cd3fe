"""Serve requests of the project's side: one JSON object a line in, one a line out (marked, the engine prints too).

- `{"do": "flags"}` → `{"flags": [...]}`
- `{"do": "additional"}` → `{"keys": {...}}`
- `{"do": "taken", "argv": [...]}` → `{"parser": "ok" | message, "taken": [[flag, [word, ...]], ...]}`
- `{"do": "check", "argv", "env", "model", "start": bool}` → `{"parser", "kvpp", "start"}`: "ok", a message, or null
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvpp_conformance.engine import hardware
from kvpp_conformance.engine.commandline import CommandLine, Refused

MARK = "\x1ekvpp "


def main() -> None:
    arguments = _arguments()
    if not arguments.plain:
        hardware.pretend(arguments.source, arguments.chip)
    server = _Server(Path(arguments.folder))
    _answer({"ready": True})
    for line in sys.stdin:
        with contextlib.redirect_stdout(io.StringIO()):
            answer = server.answer(json.loads(line))
        _answer(answer)


class _Server:
    def __init__(self, folder: Path) -> None:
        from kvpp_conformance.engine.start import Start  # noqa: PLC0415  (after the hardware)

        self.line = CommandLine()
        self.start = Start(self.line, folder)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return getattr(self, f"_do_{request['do']}")(request)  # type: ignore[no-any-return]

    def _do_flags(self, _request: dict[str, Any]) -> dict[str, Any]:
        from kvpp_conformance.engine import flags  # noqa: PLC0415

        return {"flags": flags.describe(self.line.serve_parser)}

    def _do_additional(self, _request: dict[str, Any]) -> dict[str, Any]:
        from kvpp_conformance.engine import additional  # noqa: PLC0415

        return {"keys": additional.describe()}

    def _do_taken(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            taken = self.line.taken(request["argv"])
        except Refused as refused:
            return {"parser": str(refused), "taken": None}
        return {"parser": "ok", "taken": [[one.flag, one.words] for one in taken]}

    def _do_check(self, request: dict[str, Any]) -> dict[str, Any]:
        from kvpp_conformance.engine import kvpp  # noqa: PLC0415

        verdict: dict[str, Any] = {"parser": "ok", "kvpp": None, "start": None}
        model, env = request.get("model") or {}, request.get("env") or {}
        with _environment(env):
            try:
                arguments = self.line.parse(request["argv"])
            except Refused as refused:
                return verdict | {"parser": str(refused)}
            verdict["kvpp"] = _verdict(lambda: kvpp.check(arguments, model, env))
            if request.get("start") and self.start.can_judge(arguments):
                verdict["start"] = _verdict(lambda: self.start.check(arguments, model))
        return verdict


def _verdict(act: Any) -> str:
    try:
        act()
    except Refused as refused:
        return str(refused)
    return "ok"


@contextlib.contextmanager
def _environment(env: dict[str, str]) -> Iterator[None]:
    """The variables of one command: vLLM reads them when it needs them."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _answer(answer: dict[str, Any]) -> None:
    sys.__stdout__.write(f"{MARK}{json.dumps(answer)}\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--folder", required=True, help="for configurations of models")
    parser.add_argument("--chip", default="A3", choices=sorted(hardware.FAMILIES))
    parser.add_argument("--plain", action="store_true", help="vLLM alone, as if vLLM Ascend were not installed")
    return parser.parse_args()


if __name__ == "__main__":
    main()
