"""`kvpp` and `python -m kvpp_operator`."""

import atexit
import gc

from kvpp_operator.cli.app import app

COLLECT_AFTER = 100_000
"""New objects before garbage is looked for. Python's default, 700 (2,000 since 3.13), has it look dozens of times through what
the modules of a command are made of while they load: with the last look at exit a sixth of `kvpp validate`."""


def main() -> None:
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)
    app(prog_name="kvpp")


if __name__ == "__main__":
    main()
