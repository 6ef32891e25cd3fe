"""Figures of the port ledger: `python tests/bench/ledger_speed.py`.

1. CPU milliseconds for an allocation in a window filled to 90 % (target: 5), and for the rest of a writer's turn.
   CPU time, because nothing here waits and a shared machine would be measured otherwise.
2. Why blocks go to the smallest run that fits: blocks of common lengths come and go, both ways.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2] / "operator" / "src"))

from kvpp_operator.ledger.allocate import Request, allocate
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.settle import settle
from kvpp_operator.ledger.window import Window, host_windows, kv_window
from kvpp_operator.ledger.wire import dump, parse
from kvpp_operator.ports import PortRange, reserved_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LENGTHS = [2, 3, 3, 3, 5, 5, 5, 9, 9, 9, 9, 9, 9, 16, 16, 16, 16, 17, 17, 17, 17, 20, 20, 32, 32, 33]
"""N + DP of TP1 to TP16 with PP2, and of DP decodes, as often as recipes use them."""


def filled(window: Window, share: float, length: int, draw: random.Random) -> Ledger:
    """A ledger whose kv blocks fill `share` of the window, with holes where engines have left; a host block beside each."""
    blocks = [PortRange.of(first, length) for first in range(window.first, window.last - length + 2, length)]
    claims = []
    for index, block in enumerate(sorted(draw.sample(blocks, round(len(blocks) * share)))):
        holder = Holder(
            Owner(f"team-{index % 20}", f"deployment-{index // 3}", f"{index // 3:036}"), "prefill", index % 3, "r1"
        )
        claims.append(Claim(block, holder, KV))
    return Ledger(tuple(claims))


def milliseconds(task: Callable[[], object], times: int = 200) -> str:
    spent = []
    for _ in range(times):
        start = time.process_time()
        task()
        spent.append((time.process_time() - start) * 1000)
    return f"p50 {statistics.median(spent):6.2f} ms   p99 {statistics.quantiles(spent, n=100)[98]:6.2f} ms"


def engine(index: int, windows: tuple[Window, ...], places: tuple[Window, ...]) -> list[Request]:
    holder = Holder(Owner("new", "comer", "u"), "prefill", index, "r1")
    return [Request(holder, KV, 8, windows), Request(holder, HOST, 19, places)]


def speed() -> None:
    window, places, reserved = kv_window(8), host_windows(8), reserved_ranges(8)
    ledger = filled(window, 0.9, 8, random.Random(1))
    one = engine(0, (window,), places)
    ten = [request for index in range(10) for request in engine(index, (window,), places)]
    spec = dump(ledger)
    live = ledger.claims
    keep = {claim.holder for claim in ledger}
    print(f"{len(ledger)} claims, {ledger.ports} of {window.capacity} ports taken")
    print("allocate one kv block      ", milliseconds(lambda: allocate(ledger, one[:1], reserved=reserved)))
    print("allocate an engine (kv+host)", milliseconds(lambda: allocate(ledger, one, reserved=reserved)))
    print("allocate ten engines       ", milliseconds(lambda: allocate(ledger, ten, reserved=reserved)))
    print(
        "settle: heal, sweep, give  ",
        milliseconds(lambda: settle(ledger, one, live=live, keep=keep, reserved=reserved)),
    )
    print("parse                      ", milliseconds(lambda: parse(spec)))
    print("dump                       ", milliseconds(lambda: dump(ledger)))
    print(f"stored size                  {len(json.dumps(spec, separators=(',', ':'))) / 1024:6.0f} KiB")


def lowest(runs: Sequence[PortRange], length: int) -> int | None:
    return next((run.first for run in runs if run.length >= length), None)


def smallest(runs: Sequence[PortRange], length: int) -> int | None:
    fitting = [run for run in runs if run.length >= length]
    return min(fitting, key=lambda run: (run.length, run.first)).first if fitting else None


def churn(choose: Callable[[Sequence[PortRange], int], int | None], share: float, seed: int) -> tuple[float, float]:
    """Share of requests that found no run, and mean longest free run, after the window has filled up."""
    draw, window, used = random.Random(seed), kv_window(8), 0
    taken: list[PortRange] = []
    failed: list[bool] = []
    longest: list[int] = []
    for step in range(6000):
        while used > share * window.capacity:
            used -= taken.pop(draw.randrange(len(taken))).length
        length = draw.choice(LENGTHS)
        runs = window.free_runs(taken)
        first = choose(runs, length)
        if step > 1500:
            failed.append(first is None)
            longest.append(max((run.length for run in runs), default=0))
        if first is None:
            used -= taken.pop(draw.randrange(len(taken))).length
        else:
            taken.append(PortRange.of(first, length))
            used += length
    return statistics.mean(failed), statistics.mean(longest)


def fragmentation() -> None:
    for share in (0.8, 0.9, 0.95):
        for name, choose in (("lowest run that fits", lowest), ("smallest run that fits", smallest)):
            results = [churn(choose, share, seed) for seed in range(3)]
            failed, longest = (statistics.mean(values) for values in zip(*results, strict=True))
            print(f"filled to {share:.0%}: {name:23} {failed:6.1%} refused, longest free run {longest:5.0f}")


if __name__ == "__main__":
    speed()
    fragmentation()
