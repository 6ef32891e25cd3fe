"""`make bench`: speed and memory, printed. Nothing is asserted: machines differ, ratios and per-unit costs speak."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("operator/src", "devcluster/src", "tests/support", "tests/bench")]

import core  # noqa: E402
import live  # noqa: E402

import ports  # noqa: E402

SECTIONS = {"core": core.main, "live": live.main, "ports": ports.main}

if __name__ == "__main__":
    for name in sys.argv[1:] or SECTIONS:
        print(f"\n## {name}\n")
        SECTIONS[name]()
