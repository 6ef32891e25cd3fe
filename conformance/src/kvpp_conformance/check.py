"""What real engine releases say of command lines.

In, one JSON object a line:

    {"id": any, "version": "0.30.0rc2", "argv": ["serve", MODEL, ...], "env": {NAME: value},
     "model": {"attention": "MLA" | "SFA" | "GQA" | "MQA" | "Hybrid", "layers": int, "config": {...}}, "chip": "A3", "start": bool,
     "expect": {"parser" | "kvpp" | "start": "ok" | "refused" | a regular expression for the message}}

`version`: a release of vLLM Ascend or `latest` (the newest one there is). `model`: what the weights would say;
`config` goes over the Hugging Face configuration that `attention` stands for. `chip` matters to `start` only. `expect`:
what should come out; without it, three times "ok". Out:

    {"id", "version", "parser": "ok" | message, "kvpp": "ok" | message | null, "start": "ok" | message | null,
     "expected": bool}

`parser`: vLLM's own parser with the release's own plugin, then its checks of the parsed arguments. `kvpp`: the release's
KVPPConfig. `start` (when asked for): everything up to the complete engine configuration. null: not reached or not asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from kvpp_conformance.environment import Say
from kvpp_conformance.releases import NEWEST, PAIRS
from kvpp_conformance.session import Engine

ANY_CHIP = "A3"
"""For what no chip changes: the parser and KVPPConfig."""
PARTS = ("parser", "kvpp", "start")
Line = dict[str, Any]
Verdict = dict[str, Any]


def read(files: Iterable[Path], releases: Iterable[str]) -> list[Line]:
    """The lines for these releases; those of others are left out. Raises ValueError for a version that nobody knows."""
    wanted = set(releases)
    lines: list[Line] = [json.loads(text) for file in files for text in file.read_text().splitlines() if text.strip()]
    return [line for line in lines if _release(line) in wanted]


def verdicts(lines: Iterable[Line], say: Say, *, start: bool = False) -> Iterator[Verdict]:
    """One verdict a line, release by release; `start` holds for lines that do not say it themselves.

    One process for a release and chip: commands cost about a millisecond, a process 20 s or more.
    """
    ordered = sorted(({"start": start} | line for line in lines), key=_group)
    for (release, chip), group in groupby(ordered, key=_group):
        commands = list(group)
        with Engine(release, chip=chip, say=say) as engine:
            say(f"{release}: {len(commands)} commands")
            requests = ({"do": "check", **_request(line)} for line in commands)
            for line, answer in zip(commands, engine.ask(requests), strict=True):
                yield {"id": line["id"], "version": line["version"], **answer, "expected": is_expected(line, answer)}


def is_expected(line: Line, verdict: Verdict) -> bool:
    """Whether each part of the verdict is what the line says; of a part that was not reached only "ok" may be said."""
    expect = line.get("expect") or dict.fromkeys(PARTS, "ok")
    return all(_is(expect.get(part), verdict[part]) for part in PARTS)


def _is(expected: str | None, said: str | None) -> bool:
    if said is None or expected is None:
        return expected in (None, "ok")
    if expected in ("ok", "refused"):
        return (said == "ok") == (expected == "ok")
    return said != "ok" and re.search(expected, said) is not None


def _request(line: Line) -> Line:
    env = {name: str(value) for name, value in (line.get("env") or {}).items()}
    return {"argv": line["argv"], "env": env, "model": line.get("model") or {}, "start": line["start"]}


def _group(line: Line) -> tuple[str, str]:
    return _release(line), line.get("chip", ANY_CHIP) if line["start"] else ANY_CHIP


def _release(line: Line) -> str:
    version = line["version"]
    if version == "latest":
        return NEWEST
    if version not in PAIRS:
        raise ValueError(f"{line['id']}: no release {version}: known are {', '.join(PAIRS)} and latest")
    return str(version)
