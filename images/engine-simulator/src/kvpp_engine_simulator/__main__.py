"""`vllm serve …` and `vllm --version`, as the engine's image has them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from kvpp_engine_simulator.launch import run
from kvpp_engine_simulator.refusal import PARSER_EXIT_CODE, RefusedError, prepare
from kvpp_engine_simulator.settings import settings_from
from kvpp_operator import versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(asctime)s [simulator] %(message)s", stream=sys.stderr
    )
    sys.exit(start(sys.argv[1:], os.environ))


def start(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run what is asked and return the exit code."""
    match list(arguments):
        case ["--version" | "-v"]:
            sys.stdout.write(f"{release_of(env).vllm}\n")
            return 0
        case ["serve", *rest]:
            pass
        case _:
            sys.stderr.write("usage: vllm serve MODEL [options]\n")
            return PARSER_EXIT_CODE
    try:
        engine, settings = prepare(rest, env)
    except RefusedError as refused:
        sys.stderr.write(f"{refused}\n")
        return refused.exit_code
    return asyncio.run(run(engine, settings))


def release_of(env: Mapping[str, str]) -> versions.Release:
    version = settings_from(env).version
    return versions.known(version) or versions.nearest(version)


if __name__ == "__main__":
    main()
