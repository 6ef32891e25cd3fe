from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvpp_devcluster import programs, toolchain
from kvpp_devcluster.processes import ProgramError, module_environment
from kvpp_devcluster.programs import Build
from kvpp_devcluster.toolchain import Toolchain

MAIN = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'
GO = Toolchain(Path("/go"), "go1.26.0", "linux/amd64")


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A Go module that builds in a second."""
    module = tmp_path / "module"
    (module / "hello").mkdir(parents=True)
    (module / "go.mod").write_text(
        "module example.com/hello\n\ngo 1.26.0\n\nrequire (\n\texample.com/pinned v1.2.3\n)\n"
    )
    (module / "go.sum").write_text("")
    (module / "hello/main.go").write_text(MAIN)
    return Build(binary="hello", module=module, package="./hello", expected="a second", programs=("hi", "hey"))


def silent(_: str) -> None:
    pass


@pytest.mark.parametrize("change", ["hello/main.go", "hello/other.go", "go.mod", "go.sum"])
def test_a_changed_file_is_another_key(build: Build, change: str) -> None:
    before = build.key(GO)
    with (build.module / change).open("a") as file:
        file.write("\n")
    assert before != build.key(GO)


@pytest.mark.parametrize(
    "other", [dataclasses.replace(GO, version="go1.27.0"), dataclasses.replace(GO, platform="linux/arm64")]
)
def test_another_toolchain_is_another_key(build: Build, other: Toolchain) -> None:
    assert build.key(GO) != build.key(other)


def test_the_place_of_the_toolchain_does_not_matter(build: Build) -> None:
    assert build.key(GO) == build.key(dataclasses.replace(GO, go=Path("/elsewhere/go")))


def test_the_version_comes_from_go_mod(build: Build) -> None:
    stamped = dataclasses.replace(build, pinned="example.com/pinned", stamps=("p.version={version}", "p.minor={minor}"))
    assert stamped.ldflags() == "-s -w -X p.version=v1.2.3 -X p.minor=2"


@pytest.mark.parametrize("build", programs.BUILDS, ids=lambda build: build.binary)
def test_every_real_build_pins_its_version(build: Build) -> None:
    assert build.version().startswith("v")


def test_assets_of_the_user_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    found = programs.ensure(["etcd", "kube-apiserver"], say=silent)
    assert found == {"etcd": tmp_path / "etcd", "kube-apiserver": tmp_path / "kube-apiserver"}


def test_a_name_that_nobody_builds_is_refused() -> None:
    with pytest.raises(ValueError, match="no build provides kubelet2"):
        programs.ensure(["kubelet2"], say=silent)


def test_a_build_answers_to_all_its_names(build: Build, tmp_path: Path) -> None:
    said: list[str] = []
    directory = programs.obtain(build, directory=tmp_path / "cache", say=said.append)
    for name in ("hello", "hi", "hey"):
        assert subprocess.check_output([directory / name], text=True) == "hello\n"
    assert len(said) == 2
    assert directory == programs.obtain(build, directory=tmp_path / "cache", say=said.append)
    assert len(said) == 2, "the second call found everything"


SCRIPT = """
import pathlib, sys
from kvpp_devcluster import programs
build = programs.Build("hello", pathlib.Path(sys.argv[1]), "./hello", "a second", ("hi", "hey"))
programs.obtain(build, directory=pathlib.Path(sys.argv[2]), say=lambda line: print(line, flush=True))
"""


def builder(build: Build, cache: Path) -> subprocess.Popen[str]:
    """Start another process that wants the same build."""
    command = [sys.executable, "-c", SCRIPT, str(build.module), str(cache)]
    return subprocess.Popen(command, env=module_environment(), stdout=subprocess.PIPE, text=True)


def test_two_processes_build_once(build: Build, tmp_path: Path) -> None:
    with builder(build, tmp_path / "cache") as one, builder(build, tmp_path / "cache") as other:
        lines = [*one.communicate(timeout=60)[0].splitlines(), *other.communicate(timeout=60)[0].splitlines()]
    assert (one.returncode, other.returncode) == (0, 0)
    assert sum(line.startswith("building hello") for line in lines) == 1
    assert len(list((tmp_path / "cache/bin").glob("hello-*"))) == 1


def test_a_killed_build_leaves_nothing_half(build: Build, tmp_path: Path) -> None:
    key = build.key(toolchain.find(build.module, directory=tmp_path, say=silent))
    (build.module / "hello/slow.go").write_text(
        "package main\n\n" + "".join(f"var v{i} = {i}\n" for i in range(200_000))
    )
    with builder(build, tmp_path / "cache") as victim:
        assert victim.stdout
        assert victim.stdout.readline().startswith("building hello")
        bin_directory = tmp_path / "cache/bin"
        wait_until(lambda: list(bin_directory.glob(".hello-*.half.*/build.log")))
        victim.kill()
    assert not list(bin_directory.glob("hello-*"))

    (build.module / "hello/slow.go").unlink()
    directory = programs.obtain(build, directory=tmp_path / "cache", say=silent)
    assert directory.name == key
    assert subprocess.check_output([directory / "hello"], text=True) == "hello\n"


def test_a_failing_build_says_why(build: Build, tmp_path: Path) -> None:
    (build.module / "hello/main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    with pytest.raises(ProgramError, match="undefined: undefined"):
        programs.obtain(build, directory=tmp_path / "cache", say=silent)
    assert not [path for path in (tmp_path / "cache/bin").iterdir() if not path.name.endswith(".lock")]


def test_a_go_that_is_too_old_is_passed_over(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution's old Go stands first on PATH; a newer one lies in the cache."""
    real = toolchain.find(build.module, directory=tmp_path, say=silent)
    old = tmp_path / "old/go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'go: go.mod requires go >= 1.26.0 (running go 1.19)' >&2\nexit 1\n")
    old.chmod(0o755)
    cached = tmp_path / "cache" / toolchain.WHEEL.replace("==", "-") / "go/bin/go"
    cached.parent.mkdir(parents=True)
    cached.symlink_to(real.go)
    monkeypatch.setenv("PATH", f"{old.parent}{os.pathsep}{os.environ['PATH']}")
    found = toolchain.find(build.module, directory=tmp_path / "cache", say=silent)
    assert found.version == real.version
    assert found.go != old


def wait_until(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
