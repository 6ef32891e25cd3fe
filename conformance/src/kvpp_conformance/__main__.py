"""`python -m kvpp_conformance`: make the environments, write the flag catalogues, check command lines, compare readings."""

# ruff: noqa: T201  (it talks to a terminal)
from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from kvpp_conformance import environment, releases


def main() -> int:
    arguments = _parser().parse_args()
    try:
        return int(arguments.run(arguments))
    except (environment.EnvironmentProblem, ValueError, RuntimeError) as problem:
        _say(str(problem))
        return 2
    except KeyboardInterrupt:
        return 130


_LINES = ".jsonl"


def _say(message: str) -> None:
    print(f"conformance: {message}", file=sys.stderr, flush=True)


def _env(arguments: argparse.Namespace) -> int:
    chosen = releases.ascend(arguments.versions)
    missing = environment.ensure(chosen, _say)
    for release in chosen:
        print(f"{release}\t{missing.get(release, 'ready').splitlines()[0]}")
    return 1 if missing else 0


def _generate(arguments: argparse.Namespace) -> int:
    from kvpp_conformance import generate  # noqa: PLC0415  (needs the operator's package)

    wrong = 0
    for release in releases.ascend(arguments.versions):
        try:
            data = generate.read(release, _say)
        except (environment.EnvironmentProblem, generate.IncompleteAdditions) as problem:
            _say(str(problem))  # a release without a wheel must not keep the others from their catalogue
            wrong += 1
            continue
        if not arguments.check:
            print(generate.write(release, data))
        elif (generate.FOLDER / f"{release}.json").read_text() != generate.text(data):
            _say(f"{release}: the catalogue is not what the parser says: run `make generate-engine-flags`")
            wrong += 1
    return 1 if wrong else 0


def _check(arguments: argparse.Namespace) -> int:
    from kvpp_conformance import check  # noqa: PLC0415

    started, count, wrong = time.monotonic(), 0, 0
    files = [*arguments.file, *(Path(word) for word in arguments.versions if word.endswith(_LINES))]
    versions = [word for word in arguments.versions if not word.endswith(_LINES)]
    if not files:
        raise ValueError(f"no file of lines: name one that ends in {_LINES}")
    lines = check.read(files, releases.ascend(versions))
    for verdict in check.verdicts(lines, _say, start=arguments.start):
        count += 1
        wrong += not verdict["expected"]
        if not (verdict["expected"] and arguments.quiet):
            print(json.dumps(verdict), flush=True)
    _say(f"{count} commands, {wrong} not as expected, {time.monotonic() - started:.0f} s")
    return 1 if wrong or not count else 0


def _agree(arguments: argparse.Namespace) -> int:
    from kvpp_conformance import agree, randomly  # noqa: PLC0415
    from kvpp_conformance.session import Engine  # noqa: PLC0415
    from kvpp_operator.engine_flags import catalogue  # noqa: PLC0415

    wrong = 0
    for release in releases.ascend(arguments.versions):
        known, tally = catalogue(release), agree.Tally()
        source = randomly.Lists(known, arguments.seed)
        lists = [source.next() for _ in range(arguments.count)]
        with Engine(release, say=_say) as engine:
            answers = engine.ask(map(agree.request, lists))
            for one in agree.compare(zip(lists, answers, strict=True), known, tally):
                wrong += 1
                print(one)
        _say(f"{release}: {arguments.count} lists, seed {arguments.seed}: {tally}")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kvpp_conformance", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    env = commands.add_parser("env", help="install what the other commands need (they do it themselves)")
    env.set_defaults(run=_env)
    generate = commands.add_parser("generate", help="write the flag catalogues of the operator from the real parsers")
    generate.add_argument("--check", action="store_true", help="write nothing; fail when a catalogue would change")
    generate.set_defaults(run=_generate)
    check = commands.add_parser("check", help="ask real releases what they say of command lines (JSON lines)")
    check.add_argument("file", nargs="*", type=Path, help="before or after --versions")
    check.add_argument("--start", action="store_true", help="also make the complete engine configuration")
    check.add_argument("--quiet", action="store_true", help="print only what is not as expected")
    check.set_defaults(run=_check)
    agree = commands.add_parser("agree", help="compare our reading of random argument lists with the real parser's")
    agree.add_argument("--count", type=int, default=3000)
    agree.add_argument("--seed", type=int, default=1)
    agree.set_defaults(run=_agree)
    for command in (env, generate, check, agree):
        command.add_argument(
            "--versions", nargs="+", default=["all"], metavar="VERSION",
            help="vLLM Ascend releases, or vLLM versions, newest, or all (default)",
        )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
