"""The folder outside the tree where built programs stay, safe against two writers and against a kill half way."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def root() -> Path:
    """`$KVPP_CACHE`, else `kvpp-operator` in the user's cache folder."""
    if own := os.environ.get("KVPP_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvpp-operator"


@contextmanager
def locked(target: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of `target` among processes; the kernel gives it back when the holder dies."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is making {target.name}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def half_done(target: Path) -> Iterator[Path]:
    """Give a folder that becomes `target` at the end, in one step, or vanishes; to be used under `locked(target)`."""
    prefix = f".{target.name}.half."
    for left_over in target.parent.glob(f"{prefix}*"):  # of a process that was killed: the lock says none is at work
        shutil.rmtree(left_over)
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        yield directory
        directory.chmod(0o755)
        directory.rename(target)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
