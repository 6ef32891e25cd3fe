"""`make conformance`: the real parser and the real KVPPConfig of engine releases judge what we render.

    tests/conformance/conform.py [--versions newest|all|VERSION...] [--count N] [--seed S] [--start]

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

Judged = tuple[corpus.Line, check.Verdict]
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
    parser.add_argument("--start", action="store_true", help="random specs too up to the complete engine configuration")
    options = parser.parse_args()
    versions = chosen(options.versions)
    written, gated = list(corpus.written(versions)), list(corpus.gated(versions))
    drawn = list(corpus.generated(options.count, options.seed, versions))
    say(f"{len(written) + len(drawn)} accepted command lines, {len(gated)} behind gates, for {', '.join(versions)}")
    lines = [line | {"start": True} for line in written + gated] + [line | {"start": options.start} for line in drawn]
    verdicts = judged(lines)
    wrong = [
        f"accepted by us, refused by {line['version']}: {line['id']}: {verdict}\n    {' '.join(line['argv'])}"
        for line, verdict in verdicts
        if "rule" not in line and is_refused(verdict)
    ]
    cases = shown(verdicts)
    wrong += [
        f"refused by us, accepted by the release: {rule}: {case}"
        for (rule, case), is_shown in cases.items()
        if not is_shown
    ]
    for text in wrong[:40]:
        print(text)
    print(f"{len(written) + len(drawn) + len(cases) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or not verdicts else 0


def judged(lines: list[corpus.Line]) -> list[Judged]:
    by_id = {(line["version"], line["id"]): line for line in lines}
    return [(by_id[verdict["version"], verdict["id"]], verdict) for verdict in check.verdicts(lines, say)]


def shown(verdicts: list[Judged]) -> dict[tuple[str, str], bool]:
    """For each case of a rule with evidence `parser` or `check`: does the release refuse at least one of its processes?"""
    refused: dict[tuple[str, str], bool] = {}
    for line, verdict in verdicts:
        if "rule" in line:
            case = (line["rule"], line["id"].rsplit(" ", 1)[0])
            refused[case] = refused.get(case, False) or is_refused(verdict)
    return refused


if __name__ == "__main__":
    sys.exit(main())
