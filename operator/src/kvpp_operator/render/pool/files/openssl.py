# ruff: noqa: INP001 - a program in a container
"""OpenSSL as memcache takes it.

With TLS it loads the library itself, from a folder: regular files (distributions have links), which nobody may write and
others may not read.
"""

from __future__ import annotations

import shutil
from pathlib import Path

PLACES = ("usr/lib/*", "usr/lib64", "usr/lib", "usr/local/lib*", "lib/*", "lib64")
NAMES = ("libssl.so", "libcrypto.so")


def provide(folder: Path) -> None:
    """Copy the system's OpenSSL 3 into a new folder; FileNotFoundError when there is none."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in NAMES:
        target = folder / name
        if not target.exists():
            shutil.copyfile(found(f"{name}.3"), target)
            target.chmod(0o500)


def found(name: str) -> Path:
    for place in PLACES:
        for path in sorted(Path("/").glob(f"{place}/{name}")):
            return path.resolve()
    raise FileNotFoundError(f"TLS wants {name}, which this image does not have")
