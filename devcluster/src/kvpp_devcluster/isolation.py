"""A part of the machine that ends as a whole: network, mounts, processes and IPC of its own.

Real hosts leave traces everywhere: mounts of containers, network namespaces, firewall rules, shims that no longer have a
parent. So all of it runs in namespaces made for it. The kernel kills the first process inside when the one outside dies,
and every other one with it; the last process takes mounts, links and rules along. Only control groups are left, and
those are removed here, at the end and before the next start.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kvpp_devcluster.processes import LIFELINE, module_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts", "--mount-proc", "--fork", "--kill-child=SIGKILL")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
CONTROL_GROUP = "KVPP_CONTROL_GROUP"
"""Variable that tells processes inside under which control group their containers belong."""
PREFIX = "kvpp-hosts-"
EMPTY_SECONDS = 20.0


def run(command: Sequence[str]) -> int:
    """Run a command inside and return its exit status, after everything that it started is gone."""
    remove_control_groups()
    own = f"{PREFIX}{os.getpid()}"
    inside = [sys.executable, "-m", "kvpp_devcluster.first_process", *command]
    argv = [sys.executable, "-I", "-S", str(LIFELINE), str(os.getpid()), "unshare", *NAMESPACES, *inside]
    started = subprocess.Popen(argv, env={**module_environment(), CONTROL_GROUP: own})
    try:
        return _wait(started)
    finally:
        started.kill()
        started.wait()
        remove_control_groups()


def _wait(started: subprocess.Popen[bytes]) -> int:
    """Ctrl-C reaches what runs inside, too, from the terminal: let it end by itself. A second one ends the waiting."""
    try:
        return started.wait()
    except KeyboardInterrupt:
        return started.wait()


def remove_control_groups() -> None:
    """Remove those whose starter is gone, from the leaves up; the kernel refuses as long as a process is in one."""
    deadline = time.monotonic() + EMPTY_SECONDS
    while (left := _remove_once()) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        sys.stderr.write(f"control groups that could not be removed: {' '.join(map(str, left))}\n")


def _remove_once() -> list[Path]:
    left = []
    for top in sorted({*CONTROL_GROUPS.glob(f"*/{PREFIX}*"), *CONTROL_GROUPS.glob(f"{PREFIX}*")}):
        pid = int(top.name.removeprefix(PREFIX))
        if pid != os.getpid() and Path("/proc", str(pid)).exists():
            continue
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # busy: the caller looks again
                Path(folder).rmdir()
        if top.exists():
            left.append(top)
    return left
