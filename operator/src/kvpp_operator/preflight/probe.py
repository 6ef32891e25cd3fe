#!/usr/bin/env python3
"""Look whether this container has what a vLLM Ascend engine needs, say what is missing, and change nothing.

    preflight [--want JSON] [--json] [--report FILE]

JSON names what is needed: `npus`, `shm` and `hugepages` in bytes, `cpus`, `transfer` (KV goes between engines), `files`
(configuration that must be there; `.json` must be JSON). Exit: 0 nothing is missing, 1 something is, 2 wrong usage.

Standard library only: it runs in images that have nothing of this project.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path("/")
IMPORTS = ("torch_npu", "vllm", "vllm_ascend")
IMPORT_SECONDS = 300
DRIVER = "usr/local/Ascend/driver"
CONTROL_DEVICES = ("davinci_manager", "devmm_svm", "hisi_hdc")
REPORT_LIMIT = 4096
"""Of a container's termination message (Kubernetes, container lifecycle)."""
SLACK = 0.98
"""A file system has a little less than its size."""


class Result(NamedTuple):
    """One check. `state`: ok, warning or error; `fix`: what to do, empty where nothing is."""

    check: str
    state: str
    found: str
    fix: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="preflight", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--want", default="{}", metavar="JSON", help="what the engine needs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write JSON there, cut to 4096 bytes")
    given = parser.parse_args()
    try:
        want = json.loads(given.want)
    except ValueError as problem:
        parser.error(f"--want: {problem}")
    results = [*(imported(name) for name in IMPORTS), *checks(ROOT, want)]
    sys.stdout.write(as_json(results) + "\n" if given.json else as_text(results))
    if given.report is not None:
        given.report.write_text(short(results), encoding="utf-8")
    return int(any(result.state == "error" for result in results))


def imported(module: str, python: str = sys.executable) -> Result:
    """Import in a process of its own: without a driver some die instead of raising."""
    program = f"import {module} as m; print('version', getattr(m, '__version__', 'unknown'))"
    try:
        done = subprocess.run(  # noqa: S603 - this Python, with a program of ours
            [python, "-c", program], check=False, capture_output=True, text=True, timeout=IMPORT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Result(
            module, "error", f"the import did not end within {IMPORT_SECONDS} s", "look at driver and devices"
        )
    version = re.search(r"^version (\S+)$", done.stdout, re.MULTILINE)
    if done.returncode == 0 and version:
        return Result(module, "ok", version[1])
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Result(module, "error", last[:300], "use the engine's image of this chip, started by its own entrypoint")


def checks(root: Path, want: dict[str, Any]) -> list[Result]:
    """Everything that files tell. `root` is `/` but in tests."""
    found = [driver(root), devices(root, int(want.get("npus", 1)))]
    if want.get("transfer"):
        found.append(hccn(root))
    found += [shared_memory(root, int(want.get("shm", 0))), huge_pages(root, int(want.get("hugepages", 0)))]
    found.append(cpus(root, int(want.get("cpus", 0))))
    return [*found, *(configuration(root, str(file)) for file in want.get("files", ()))]


def driver(root: Path) -> Result:
    library = root / DRIVER / "lib64" / "driver" / "libascend_hal.so"
    version = re.search(r"^Version=(\S+)", text(root / DRIVER / "version.info"), re.MULTILINE)
    if not version:
        fix = f"install the driver, or set accelerator.driverMounts to Host where the runtime does not mount /{DRIVER}"
        return Result("driver", "error", f"/{DRIVER}/version.info is missing or names no version", fix)
    if not library.exists():
        fix = "set accelerator.driverMounts to Host, or use the Ascend container runtime"
        return Result("driver", "error", f"{version[1]}, but without libascend_hal.so in the container", fix)
    return Result("driver", "ok", version[1])


def devices(root: Path, npus: int) -> Result:
    names = [path.name for path in sorted((root / "dev").glob("*"))] if (root / "dev").is_dir() else []
    found = [name for name in names if re.fullmatch(r"davinci\d+", name)]
    absent = [name for name in CONTROL_DEVICES if name not in names] if npus else []
    if len(found) < npus or absent:
        lacks = f"; without {', '.join(absent)}" if absent else ""
        fix = "look at the device plugin: it brings /dev/davinci* into containers that ask for NPUs"
        return Result("devices", "error", f"{len(found)} of {npus} NPUs{lacks}", fix)
    return Result("devices", "ok", f"{len(found)} NPUs")


def hccn(root: Path) -> Result:
    """Without it KV transfer moves other bytes and says nothing (vllm-ascend #7711)."""
    content = text(root / "etc" / "hccn.conf")
    addresses = re.findall(r"^\s*address_\d+\s*=\s*(\S+)", content, re.MULTILINE)
    if not content.strip():
        fix = "configure the NPUs' network with hccn_tool; answers are silently wrong without the file"
        return Result("hccn.conf", "error", "/etc/hccn.conf is missing or empty", fix)
    return Result("hccn.conf", "ok", f"{len(addresses)} addresses" if addresses else "there, without addresses")


def shared_memory(root: Path, wanted: int) -> Result:
    folder = root / "dev" / "shm"
    if not folder.is_dir():
        return Result("shared memory", "error", "missing", "mount an emptyDir of medium Memory there")
    status = os.statvfs(folder)
    size = status.f_blocks * status.f_frsize
    if size < wanted * SLACK:
        fix = "raise sharedMemory of the role; HCCL's start hangs without enough"
        return Result("shared memory", "error", f"{gibibytes(size)} of {gibibytes(wanted)}", fix)
    return Result("shared memory", "ok", gibibytes(size))


def huge_pages(root: Path, wanted: int) -> Result:
    info = dict(re.findall(r"^(\w+):\s+(\d+)", text(root / "proc" / "meminfo"), re.MULTILINE))
    free = int(info.get("HugePages_Free", 0)) * int(info.get("Hugepagesize", 0)) * 1024
    if free < wanted:
        fix = "reserve more on the node: vm.nr_hugepages, then restart its kubelet"
        return Result("huge pages", "error", f"{gibibytes(free)} free of {gibibytes(wanted)}", fix)
    return Result("huge pages", "ok", f"{gibibytes(free)} free")


def cpus(root: Path, wanted: int) -> Result:
    count = len(re.findall(r"^processor\s*:", text(root / "proc" / "cpuinfo"), re.MULTILINE))
    if count < wanted:
        return Result("CPUs", "warning", f"{count} of {wanted}", "the engine binds five threads to CPUs for each NPU")
    return Result("CPUs", "ok", str(count))


def configuration(root: Path, file: str) -> Result:
    path = root / file.lstrip("/")
    if not path.is_file():
        return Result(file, "error", "missing", "look at the volume that it comes from")
    if path.suffix == ".json":
        try:
            json.loads(text(path))
        except ValueError as problem:
            return Result(file, "error", f"no JSON: {problem}", "fetch it again")
    return Result(file, "ok", f"{path.stat().st_size} bytes")


def text(path: Path) -> str:
    """Content of a file; "" where it can't be read: whoever asks says what that means."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def as_json(results: list[Result]) -> str:
    return json.dumps([result._asdict() for result in results], ensure_ascii=False, separators=(",", ":"))


def short(results: list[Result]) -> str:
    """Troubles first, so that what is cut off is what is well."""
    order = sorted(results, key=lambda result: ("error", "warning", "ok").index(result.state))
    while order and len(as_json(order).encode()) > REPORT_LIMIT:
        order.pop()
    return as_json(order)


def as_text(results: list[Result]) -> str:
    width = max(len(result.check) for result in results)
    lines = (f"{result.state:<8} {result.check:<{width}}  {result.found}" for result in results)
    fixes = (f"\n{'':<8} {'':<{width}}  fix: {result.fix}" if result.fix else "" for result in results)
    return "".join(f"{line}{fix}\n" for line, fix in zip(lines, fixes, strict=True))


if __name__ == "__main__":
    sys.exit(main())
