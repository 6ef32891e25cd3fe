"""A part of the machine that ends as a whole: network, mounts, processes and IPC of its own.

Real hosts leave traces everywhere: mounts of containers, network namespaces, firewall rules, shims that no longer have a
parent. So all of it runs in namespaces made for it. The kernel kills the first process inside when the one outside dies,
and every other one with it; the last process takes mounts, links and rules along. Only control groups are left, and
those are removed here, at the end and before the next start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from kvpp_devcluster import controlgroups
from kvpp_devcluster.processes import LIFELINE, module_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts", "--mount-proc", "--fork", "--kill-child=SIGKILL")
CONTROL_GROUP = "KVPP_CONTROL_GROUP"
"""Variable that tells the first process which control group to make around itself."""


def run(command: Sequence[str]) -> int:
    """Run a command inside and return its exit status, after everything that it started is gone."""
    controlgroups.remove()
    own = f"{controlgroups.PREFIX}{os.getpid()}"
    inside = [sys.executable, "-m", "kvpp_devcluster.first_process", *command]
    argv = [sys.executable, "-I", "-S", str(LIFELINE), str(os.getpid()), "unshare", *NAMESPACES, *inside]
    started = subprocess.Popen(argv, env={**module_environment(), CONTROL_GROUP: own})
    try:
        return _wait(started)
    finally:
        started.kill()
        started.wait()
        controlgroups.remove()


def _wait(started: subprocess.Popen[bytes]) -> int:
    """Ctrl-C reaches what runs inside, too, from the terminal: let it end by itself. A second one ends the waiting."""
    try:
        return started.wait()
    except KeyboardInterrupt:
        return started.wait()
