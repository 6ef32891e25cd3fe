"""Run a program that dies with its parent: `python -I -S lifeline.py PARENT_PID PROGRAM [ARGUMENT...]`.

A separate program instead of Popen(preexec_fn=...), which may deadlock when the parent has threads (subprocess's
documentation).  The wish survives exec(2) (prctl(2), PR_SET_PDEATHSIG), so PROGRAM keeps this process's id.
Linux only; elsewhere PROGRAM just runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the wish was known
        sys.exit("the parent is gone")
    os.execvp(program[0], program)  # noqa: S606  (no shell wanted)


if __name__ == "__main__":
    main()
