"""The probe over a folder that plays a container's root: each thing that can be missing, and what it says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvpp_operator.preflight import probe
from kvpp_operator.preflight.probe import REPORT_LIMIT, Result, checks, imported, short

WANT: dict[str, Any] = {
    "npus": 2,
    "shm": 2**20,
    "hugepages": 2**30,
    "cpus": 2,
    "transfer": True,
    "files": ["/models/m/config.json"],
}
FILES = {
    "usr/local/Ascend/driver/version.info": "Version=25.2.0\nascendhal_version=7.35\n",
    "usr/local/Ascend/driver/lib64/driver/libascend_hal.so": "",
    "dev/davinci0": "", "dev/davinci1": "", "dev/davinci_manager": "", "dev/devmm_svm": "", "dev/hisi_hdc": "", "dev/shm/x": "",
    "etc/hccn.conf": "address_0=10.0.0.1\nnetmask_0=255.255.255.0\naddress_1=10.0.0.2\n",
    "proc/meminfo": "MemTotal:  1 kB\nHugePages_Total:    1024\nHugePages_Free:     1024\nHugepagesize:       2048 kB\n",
    "proc/cpuinfo": "processor\t: 0\nx\t: y\nprocessor\t: 1\n",
    "models/m/config.json": '{"architectures": []}',
}  # fmt: skip


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., dict[str, Result]]:
    """Look at a container that has everything but for the changes: name → content, or None for missing."""

    def look(want: dict[str, Any] = WANT, **changes: str | None) -> dict[str, Result]:
        for name, content in {**FILES, **changes}.items():
            if content is not None:
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, "utf-8")
        return {result.check: result for result in checks(tmp_path, want)}

    return look


def test_a_node_that_has_everything(look: Callable[..., dict[str, Result]]) -> None:
    found = look()
    shown = {check: result.found for check, result in found.items() if check != "shared memory"}
    assert {result.state for result in found.values()} == {"ok"}
    assert shown == {
        "driver": "25.2.0", "devices": "2 NPUs", "hccn.conf": "2 addresses", "huge pages": "2.0 GiB free", "CPUs": "2",
        "/models/m/config.json": "21 bytes",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("check", "state", "words", "want", "changes"),
    [
        ("driver", "error", "names no version", {}, {"usr/local/Ascend/driver/version.info": None}),
        ("driver", "error", "25.2.0, but without libascend_hal.so", {}, {"usr/local/Ascend/driver/lib64/driver/libascend_hal.so": None}),
        ("devices", "error", "1 of 2 NPUs", {}, {"dev/davinci1": None}),
        ("devices", "error", "2 of 2 NPUs; without hisi_hdc", {}, {"dev/hisi_hdc": None}),
        ("devices", "ok", "0 NPUs", {"npus": 0}, {name: None for name in FILES if name.startswith("dev/d") or "hisi" in name}),
        ("hccn.conf", "error", "missing or empty", {}, {"etc/hccn.conf": None}),
        ("hccn.conf", "error", "missing or empty", {}, {"etc/hccn.conf": "\n"}),
        ("shared memory", "error", "missing", {}, {"dev/shm/x": None}),
        ("shared memory", "error", "of 1048576.0 GiB", {"shm": 2**50}, {}),
        ("huge pages", "error", "2.0 GiB free of 4.0 GiB", {"hugepages": 2**32}, {}),
        ("huge pages", "error", "0.0 GiB free of 1.0 GiB", {}, {"proc/meminfo": None}),
        ("CPUs", "warning", "2 of 40", {"cpus": 40}, {}),
        ("/models/m/config.json", "error", "missing", {}, {"models/m/config.json": None}),
        ("/models/m/config.json", "error", "no JSON", {}, {"models/m/config.json": "{"}),
    ],
)  # fmt: skip
def test_what_is_missing(  # noqa: PLR0917 - the columns of a table
    look: Callable[..., dict[str, Result]],
    check: str,
    state: str,
    words: str,
    want: dict[str, Any],
    changes: dict[str, str | None],
) -> None:
    found = look(WANT | want, **changes)[check]
    assert (found.state, words in found.found) == (state, True), found
    assert bool(found.fix) is (state != "ok")
    assert [other for other, result in look(WANT | want, **changes).items() if result.state != "ok"] in ([check], [])


def test_without_transfer_nobody_asks_for_hccn(look: Callable[..., dict[str, Result]]) -> None:
    assert "hccn.conf" not in look(WANT | {"transfer": False}, **{"etc/hccn.conf": None})


def python_with(folder: Path, **modules: str) -> str:
    """A Python whose path has these modules."""
    for name, content in modules.items():
        (folder / f"{name}.py").write_text(content, "utf-8")
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    return str(wrapper)


def test_imports(tmp_path: Path) -> None:
    died = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    no_driver = "raise OSError('libascend_hal.so: cannot open shared object file')"
    python = python_with(tmp_path, vllm="print('noise'); __version__ = '0.30.0'", torch_npu=no_driver, vllm_ascend=died)
    assert imported("vllm", python) == Result("vllm", "ok", "0.30.0")
    found = {name: imported(name, python) for name in ("torch_npu", "vllm_ascend", "absent")}
    assert {name: (result.state, result.found) for name, result in found.items()} == {
        "torch_npu": ("error", "OSError: libascend_hal.so: cannot open shared object file"),
        "vllm_ascend": ("error", "exit code -9"),
        "absent": ("error", "ModuleNotFoundError: No module named 'absent'"),
    }


def test_a_report_that_is_too_long_keeps_the_troubles() -> None:
    many = [Result(f"file {number}", "ok", "x" * 100) for number in range(100)]
    text = short([*many, Result("hccn.conf", "error", "missing", "fix")])
    assert len(text.encode()) <= REPORT_LIMIT
    assert json.loads(text)[0]["check"] == "hccn.conf"


def test_the_program_itself(tmp_path: Path) -> None:
    """Alone and as a file, as a container has it."""
    report = tmp_path / "report"
    program = [sys.executable, "-I", str(probe.__file__), "--want", '{"npus": 64}', "--report", str(report)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 1, done.stderr
    assert "error    devices" in done.stdout
    assert "fix: look at the device plugin" in done.stdout
    said = {one["check"]: one["state"] for one in json.loads(report.read_text("utf-8"))}
    assert (said["devices"], said["torch_npu"]) == ("error", "error")
    wrong = subprocess.run([*program[:4], "{"], check=False, capture_output=True, text=True)
    assert (wrong.returncode, "--want" in wrong.stderr) == (2, True)
