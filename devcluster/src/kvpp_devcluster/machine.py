"""What a machine must have for real hosts, what may be installed, and what must be as it was afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from kvpp_devcluster import controlgroups
from kvpp_devcluster.first_process import TUNABLES
from kvpp_devcluster.processes import ProgramError, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Command or file → Debian package.
NEEDED = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PLUGIN_PACKAGE = "containernetworking-plugins"
ADMIN_PATHS = "/usr/local/sbin:/usr/sbin:/sbin"
# Where runtimes and kubelets that escaped would leave something.
ESCAPED = ("k8s.io", "kubepods*")
PLACES = ("/run/netns", "/run/containerd", "/run/runc", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/etc/cni")


def plugins() -> Path | None:
    """Return the folder with the network plugins."""
    return next((folder for folder in PLUGINS if (folder / "ptp").exists()), None)


def prepare(more: Mapping[str, str], *, say: Callable[[str], None]) -> None:
    """Install what is missing where that is possible. Raises `ProgramError` when this machine can't have real hosts."""
    if sys.platform != "linux":
        raise ProgramError("real hosts need Linux: network namespaces, containerd and kubelets")
    if os.geteuid() != 0:
        raise ProgramError("real hosts need root: containers, network namespaces and mounts. Nothing was started.")
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{ADMIN_PATHS}"
    missing = _missing(more)
    if missing and shutil.which("apt-get"):
        say(f"installing {', '.join(missing)} (apt-get)")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "update", "-qq"], env=quiet)
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], env=quiet)
        missing = _missing(more)
    if missing:
        raise ProgramError(f"missing, by Debian's names: {', '.join(missing)}")
    if "overlay" not in Path("/proc/filesystems").read_text():
        raise ProgramError("this kernel has no overlay file system (modprobe overlay)")


def _missing(more: Mapping[str, str]) -> list[str]:
    wanted = {**NEEDED, **more}
    found = {package for program, package in wanted.items() if shutil.which(program) is None}
    return sorted(found | (set() if plugins() else {PLUGIN_PACKAGE}))


@dataclass(frozen=True)
class Footprint:
    """What a run may not change. `left_over` compares two of them."""

    mounts: frozenset[str]
    links: frozenset[str]
    addresses: frozenset[str]
    routes: frozenset[str]
    firewall: frozenset[str]
    namespaces: frozenset[str]
    """Network and process namespaces that processes live in: a container or a shim would be in one of its own."""
    control_groups: frozenset[str]
    files: frozenset[str]
    tunables: frozenset[str]

    def left_over(self, before: Footprint) -> list[str]:
        """List what is there now and was not before, or the other way round."""
        return [
            f"{field.name}: {'+' if line in getattr(self, field.name) else '-'} {line}"
            for field in fields(self)
            for line in sorted(getattr(self, field.name) ^ getattr(before, field.name))
        ]


def footprint() -> Footprint:
    return Footprint(
        mounts=frozenset(" ".join(line.split()[3:5]) for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        links=frozenset(line.split()[1] for line in _lines("ip", "-o", "link")),
        addresses=frozenset(" ".join(line.split()[1:4]) for line in _lines("ip", "-o", "address")),
        routes=frozenset(_lines("ip", "route", "show", "table", "all")),
        firewall=frozenset(
            line for line in (*_lines("iptables-save"), *_lines("ip6tables-save")) if line.startswith("-")
        ),
        namespaces=_namespaces(),
        control_groups=_control_groups(),
        files=frozenset(str(path) for place in PLACES for path in (Path(place), *Path(place).glob("*"))
                        if path.exists()),
        tunables=frozenset(f"{name}={Path('/proc/sys', name).read_text().strip()}" for name in TUNABLES),
    )  # fmt: skip


def _control_groups() -> frozenset[str]:
    ours = controlgroups.ROOT.rglob(f"{controlgroups.PREFIX}*")
    escaped = (found for name in ESCAPED for found in controlgroups.ROOT.rglob(name))
    return frozenset(path for path in map(str, (*ours, *escaped)) if not controlgroups.is_of_another(path))


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def _namespaces() -> frozenset[str]:
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            groups = (process / "cgroup").read_text().replace("\n", "/")
            is_door = (process / "comm").read_text() == "unshare\n"  # of a run, at its outside: ends with it
            if not is_door and not controlgroups.is_of_another(groups):
                found |= {(process / "ns" / kind).readlink().name for kind in ("net", "pid")}
        except OSError:  # it has just ended
            continue
    return frozenset(found)
