"""The pure core: milliseconds per spec, warm, and the start of the command line against a bare import."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import specs

from kvpp_operator.configuration import Configuration
from kvpp_operator.decide import decide
from kvpp_operator.manifest import Manifest, key_of
from kvpp_operator.pipeline import plan_one, wished_of
from kvpp_operator.resolve import resolve
from kvpp_operator.rules import check, judge
from kvpp_operator.world import OFFLINE, World

CONFIGURATION = Configuration()
ROUNDS = 200


def measure(work: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, float]:
    """Milliseconds at p50 and p99 after a warm-up."""
    for _ in range(5):
        work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def line(what: str, p50: float, p99: float) -> None:
    print(f"{what:<58} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms")


def main() -> None:
    for file in specs.EXAMPLES:
        [body] = specs.read(file)
        judged = judge(body, CONFIGURATION, OFFLINE)
        line(f"validate            {file.stem}", *measure(partial(judge, body, CONFIGURATION, OFFLINE)))
        if judged.deployment is not None and judged.resolved is not None:
            line(f"  all rules         {file.stem}", *measure(partial(check, judged.resolved, OFFLINE)))
            line(f"  resolve           {file.stem}", *measure(partial(resolve, judged.deployment, CONFIGURATION)))
        if judged.accepted:
            line(f"judge, plan, render {file.stem}", *measure(partial(made_of, body)))
    body = specs.deployment(specs.DISAGGREGATED)
    world = World(owned={key_of(manifest): manifest for manifest in decide(body, World(), CONFIGURATION).wished or ()})
    line("decide, nothing to do", *measure(lambda: decide(body, world, CONFIGURATION)))
    start_up()


def made_of(body: dict[str, Any]) -> list[Manifest]:
    return wished_of(plan_one(body, CONFIGURATION))


def start_up() -> None:
    """`kvpp validate FILE` against `import pydantic, yaml, jinja2`, one after the other, each with its bytecode on the disk."""
    bare = [sys.executable, "-c", "import pydantic, yaml, jinja2"]
    ours = [sys.executable, "-m", "kvpp_operator", "validate", str(specs.EXAMPLES[1])]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {"bare import": [], "kvpp validate": []}
    subprocess.run(ours, check=True, capture_output=True, env=environment)
    for _ in range(9):
        for name, command in (("bare import", bare), ("kvpp validate", ours)):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environment)
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"start: bare import {medians['bare import']:.3f} s, kvpp validate {medians['kvpp validate']:.3f} s, "
          f"ratio {medians['kvpp validate'] / medians['bare import']:.2f}")  # fmt: skip
