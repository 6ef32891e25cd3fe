"""The first process inside (see `isolation`): makes the machine look fresh, then runs a command and collects the dead.

    python -m kvpp_devcluster.first_process COMMAND [ARGUMENT...]

Folders of the system can be written to, but what is written stays in memory and is gone with the last process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from kvpp_devcluster import controlgroups
from kvpp_devcluster.isolation import CONTROL_GROUP
from kvpp_devcluster.processes import run

HOME = Path("/run/kvpp-hosts")
"""Everything of the cluster, in memory."""
LAYERS = Path("/run/kvpp-layers")
WRITABLE = ("etc", "mnt", "opt", "usr", "var")
# What a kubelet sets on its machine (cm/container_manager_linux.go, setupKernelTunables), for all namespaces at once: it
# is shown files of ours that hold these values already.
TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def main() -> int:
    if not os.environ.get(CONTROL_GROUP):
        sys.exit("not to be called directly: see kvpp_devcluster.isolation")
    prepare()
    return collect(sys.argv[1:])


def prepare() -> None:
    # Kubelets hand mounts to containers, so mounts are shared here; with the outside they no longer are.
    run(["mount", "--make-rshared", "/"])
    run(["mount", "-t", "tmpfs", "-o", "mode=0755", "kvpp-run", "/run"])
    for name in WRITABLE:
        upper, work = LAYERS / name / "upper", LAYERS / name / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir=/{name},upperdir={upper},workdir={work}"
        run(["mount", "-t", "overlay", "-o", options, f"kvpp-{name}", f"/{name}"])
    for name, value in TUNABLES.items():
        shown = LAYERS / "sysctl" / name
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"{value}\n")
        run(["mount", "--bind", shown, f"/proc/sys/{name}"])
    controlgroups.enclose(os.environ[CONTROL_GROUP])
    (HOME / "tmp").mkdir(parents=True)
    run(["ip", "link", "set", "lo", "up"])
    socket.sethostname("kvpp-hosts")


def collect(command: list[str]) -> int:
    """Run the command to its end. Whoever loses its parent becomes a child of the first process, which must wait for it."""
    child = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(HOME / "tmp")})
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal has told the child as well
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
