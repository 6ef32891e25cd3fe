# noqa: INP001 - a script beside its Containerfile, no package
"""Take the P/D proxy script out of vLLM Ascend's source packages; it is never part of this repository.

    fetch_proxy.py TARGET [RELEASE...]     writes TARGET/<release>/load_balance_proxy_server_example.py

The packages and their hashes stand in proxy-sources.txt. They are read, not built: building needs an NPU's toolkit, so
pip stops after unpacking, and the script is picked up from what it leaves behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("proxy-sources.txt")
SCRIPT = "load_balance_proxy_server_example.py"
FOLDER = "examples/disaggregated_prefill_v1"


def sources(text: str) -> dict[str, str]:
    """Release → requirement line with its hash."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.partition("==")[2].partition(" ")[0]: line for line in lines}


def fetch(requirement: str, target: Path) -> Path:
    """Write the script of one release to a folder. Raises `RuntimeError` with pip's words when it can't be had."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "wanted.txt"
        wanted.write_text(f"{requirement}\n", encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--require-hashes",
            "--no-deps",
            "--no-binary",
            ":all:",
        ]
        command += ["--no-build-isolation", "--no-clean", "--dest", scratch, "--requirement", str(wanted)]
        done = subprocess.run(  # noqa: S603 - pip itself
            command, env={**os.environ, "TMPDIR": scratch}, check=False, capture_output=True, text=True
        )
        found = sorted(Path(scratch).glob(f"**/{FOLDER}/{SCRIPT}"))
        if not found:
            raise RuntimeError(f"no {SCRIPT} in {requirement.partition(' ')[0]}:\n{done.stderr.strip()}")
        target.mkdir(parents=True, exist_ok=True)
        unfinished = target / f"{SCRIPT}.{os.getpid()}"
        shutil.copyfile(found[0], unfinished)
        return unfinished.rename(target / SCRIPT)


def main() -> None:
    target, *chosen = sys.argv[1:]
    known = sources(SOURCES.read_text(encoding="utf-8"))
    for release in chosen or known:
        sys.stdout.write(f"{fetch(known[release], Path(target) / release)}\n")


if __name__ == "__main__":
    main()
