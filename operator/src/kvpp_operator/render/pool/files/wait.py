# ruff: noqa: INP001, T201 - a program in a container
"""Hold an engine back until its pool answers: `wait.py HOST:PORT ... [--fill SOURCE TARGET] [--openssl FOLDER]`.

An engine that starts before its pool stays without it. `--fill` first writes TARGET from SOURCE with $(NAME) replaced
from the environment, for what differs from pod to pod; `--openssl` puts the libraries into a folder.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import time
from pathlib import Path

from openssl import provide  # type: ignore[import-not-found]

PAUSE_SECONDS = 2.0
CONNECT_SECONDS = 5.0
REPEAT_SECONDS = 30.0
"""How often the same reason is said again."""


def fill(source: Path, target: Path) -> None:
    """KeyError when the environment lacks a name."""
    target.write_text(re.sub(r"\$\(([A-Z_]+)\)", lambda found: bracketed(os.environ[found[1]]), source.read_text()))


def bracketed(value: str) -> str:
    return f"[{value}]" if ":" in value else value


def wait(endpoint: str) -> None:
    host, _, port = endpoint.rpartition(":")
    said, last = 0.0, ""
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            reason, now = str(error), time.monotonic()
            if reason != last or now - said > REPEAT_SECONDS:
                print(f"The pool's service at {endpoint} does not answer yet: {reason}", flush=True)
                said, last = now, reason
            time.sleep(PAUSE_SECONDS)
        else:
            print(f"The pool's service at {endpoint} answers", flush=True)
            return


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoints", nargs="*")
    parser.add_argument("--fill", nargs=2, type=Path)
    parser.add_argument("--openssl", type=Path)
    given = parser.parse_args()
    if given.fill:
        fill(*given.fill)
    if given.openssl:
        provide(given.openssl)
    for endpoint in given.endpoints:
        wait(endpoint)
    return 0


if __name__ == "__main__":
    sys.exit(main())
