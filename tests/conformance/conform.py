"""`make conformance`: the real parser and the real KVPPConfig of engine releases judge what we render.

    tests/conformance/conform.py [--versions newest|all|VERSION...] [--count N] [--seed S]

Environments are made outside the tree, once. The last line is a test runner's: N passed, N failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder) for folder in ("operator/src", "conformance/src", "tests/support", "tests/conformance")
]

import corpus  # noqa: E402
from kvpp_conformance import check  # noqa: E402

from kvpp_operator.versions import NEWEST_PINNED, RELEASES  # noqa: E402

PINNED = [release.name for release in RELEASES if release.name != "latest"]


def chosen(words: list[str]) -> list[str]:
    return {"newest": [NEWEST_PINNED.name], "all": PINNED}.get(words[0], words)


def say(message: str) -> None:
    print(f"conformance: {message}", file=sys.stderr, flush=True)


def is_refused(verdict: check.Verdict) -> bool:
    return any(verdict[part] not in (None, "ok") for part in check.PARTS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", nargs="+", default=["newest"])
    parser.add_argument("--count", type=int, default=2000, help="random accepted specs")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    versions = chosen(options.versions)
    accepted = list(corpus.written(versions))
    accepted += corpus.generated(options.count, options.seed, versions)
    gated = list(corpus.gated(versions))
    say(f"{len(accepted)} accepted command lines, {len(gated)} behind gates, for {', '.join(versions)}")
    wrong = []
    for line, verdict in judged(accepted):
        if is_refused(verdict):
            wrong.append(
                f"accepted by us, refused by {line['version']}: {line['id']}: {verdict}\n    {' '.join(line['argv'])}"
            )
    for rule, case in not_shown(gated):
        print(
            f"not shown: {rule} refuses {case}, and this release's parser and start-up checks, as far as they run without an NPU, do not"
        )
    for text in wrong[:40]:
        print(text)
    print(f"{len(accepted) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or not accepted else 0


def judged(lines: list[corpus.Line], *, start: bool = False) -> list[tuple[corpus.Line, check.Verdict]]:
    by_id = {(line["version"], line["id"]): line for line in lines}
    return [(by_id[verdict["version"], verdict["id"]], verdict) for verdict in check.verdicts(lines, say, start=start)]


def not_shown(gated: list[corpus.Line]) -> list[tuple[str, str]]:
    """Gates that no process of their case shows to be right: what refuses them may need an NPU, or the gate is too strict."""
    refused: dict[tuple[str, str], bool] = {}
    for line, verdict in judged(gated):
        case = (line["rule"], line["id"].rsplit(" ", 1)[0])
        refused[case] = refused.get(case, False) or is_refused(verdict)
    return sorted(case for case, shown in refused.items() if not shown)


if __name__ == "__main__":
    sys.exit(main())
