"""Whatever happens inside, and however it ends, the machine is as it was. Needs root: `make e2e` runs these tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvpp_devcluster import controlgroups, isolation, machine
from kvpp_devcluster.processes import module_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

SECONDS = 15.0
# What containers, kubelets and kube-proxies leave, in one line each.
MESS = """
set -e
ip netns add host-9
ip link add hosts type bridge
iptables -t nat -A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE
mkdir -p /var/lib/kubelet/pods /usr/share/kvpp-mess
mount -t tmpfs mess /mnt
echo 0 >/proc/sys/vm/overcommit_memory
setsid sleep 1000 &
for tree in /sys/fs/cgroup/memory /sys/fs/cgroup/pids /sys/fs/cgroup; do
  [ -e $tree/cgroup.procs ] || continue
  mkdir -p $tree/k8s.io/pod
  echo $! >$tree/k8s.io/pod/cgroup.procs
done
"""
STARTED = "from kvpp_devcluster import isolation; import sys; sys.exit(isolation.run(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    machine.prepare({}, say=print)
    controlgroups.remove()  # of a run that was killed
    before = machine.footprint()
    yield
    deadline = time.monotonic() + SECONDS
    while (left := machine.footprint().left_over(before)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []


@pytest.mark.parametrize("code", [0, 7])
def test_an_end_by_itself(code: int) -> None:
    assert isolation.run(["sh", "-c", f"{MESS} exit {code}"]) == code


def test_ctrl_c_lets_the_inside_end_by_itself(tmp_path: Path) -> None:
    marker = tmp_path / "ended"
    outside = start(
        f"trap 'echo cleaned >{marker}; exit 5' INT\n{MESS} touch {tmp_path}/up; while :; do sleep 0.1; done", tmp_path
    )
    os.killpg(outside.pid, signal.SIGINT)
    assert outside.wait(SECONDS) == 5
    assert marker.read_text() == "cleaned\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_outside_takes_the_inside_along(tmp_path: Path, how: signal.Signals) -> None:
    outside = start(f"{MESS} touch {tmp_path}/up; sleep 1000", tmp_path)
    outside.send_signal(how)
    outside.wait(SECONDS)
    time.sleep(0.5)
    controlgroups.remove()  # as the next start does


def start(script: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start the outside in a process group of its own, as a shell does, and return when the inside is up."""
    outside = subprocess.Popen(
        [sys.executable, "-c", STARTED, "sh", "-c", script], env=module_environment(), start_new_session=True
    )
    deadline = time.monotonic() + SECONDS
    while not (folder / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return outside
