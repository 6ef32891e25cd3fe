"""One control group around everything inside: its containers' groups end up below it, and nowhere else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kvpp_devcluster.processes import ProgramError, run

ROOT = Path("/sys/fs/cgroup")
PREFIX = "kvpp-hosts-"
CLONE_NEWCGROUP = 0x02000000  # <linux/sched.h>
FIRST = "first"
"""Where processes of the outermost group go in version 2, which lets a group have either processes or children's limits."""
EMPTY_SECONDS = 20.0


@dataclass(frozen=True)
class Tree:
    """One mounted hierarchy, and where this process is in it."""

    mount: Path
    kind: str
    options: str
    place: str

    @property
    def own(self) -> Path:
        return self.mount / self.place.lstrip("/")


def trees() -> list[Tree]:
    """Read /proc/self/mountinfo and /proc/self/cgroup: the former tells what lies where, the latter our place in each."""
    places = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    known = {word for key in places for word in key.split(",")}
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        names = [word for word in options.split(",") if word in known] if kind == "cgroup" else [""]
        key = next((key for key in places if set(key.split(",")) == set(names)), None)
        if kind in ("cgroup", "cgroup2") and key is not None:
            found.append(Tree(Path(before.split()[4]), kind, ",".join(names), places[key]))
    return found


def enclose(name: str) -> None:
    """Put this process and its future children below a new group, which then looks like the root to them."""
    entered = trees()
    for tree in entered:
        group = tree.own / name
        group.mkdir()
        if tree.options == "cpuset":  # empty at first, and nobody may enter an empty one
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((tree.own / file).read_text())
        (group / "cgroup.procs").write_text("0")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWCGROUP):
        raise ProgramError(f"no control group namespace: {os.strerror(ctypes.get_errno())}")
    for tree in entered:
        run(["umount", "--lazy", tree.mount])
        options = ["-o", tree.options] if tree.options else []
        run(["mount", "-t", tree.kind, *options, "cgroup", tree.mount])
        if tree.mount == ROOT:
            _make_room(ROOT)


def _make_room(root: Path) -> None:
    """Let children have limits, in version 2."""
    first = root / FIRST
    first.mkdir()
    (first / "cgroup.procs").write_text("0")
    controllers = (root / "cgroup.controllers").read_text().split()
    (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def is_of_another(path: str) -> bool:
    """Whether a control group belongs to another run that is alive."""
    pids = re.findall(rf"{PREFIX}(\d+)", path)
    return any(int(pid) != os.getpid() and Path("/proc", pid).exists() for pid in pids)


def remove() -> None:
    """Remove groups whose starter is gone, from the leaves up; the kernel refuses as long as a process is in one."""
    deadline = time.monotonic() + EMPTY_SECONDS
    while (left := _remove_once()) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        sys.stderr.write(f"control groups that could not be removed: {' '.join(map(str, left))}\n")


def _remove_once() -> list[Path]:
    left = []
    for top in sorted(ROOT.rglob(f"{PREFIX}*")):
        if is_of_another(str(top)):
            continue
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # busy: the caller looks again
                Path(folder).rmdir()
        if top.exists():
            left.append(top)
    return left
