"""Where the cluster's programs come from: KUBEBUILDER_ASSETS, a cache outside the tree, or a build from Go modules."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvpp_devcluster import cache, toolchain
from kvpp_devcluster.processes import ProgramError, run, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvpp_devcluster.toolchain import Toolchain

GO_MODULES = Path(__file__).resolve().parents[2] / "go"
PROGRESS_SECONDS = 15.0


@dataclass(frozen=True)
class Build:
    """One `go build`: what it makes and from what."""

    binary: str
    module: Path
    package: str
    expected: str  # how long it takes on two cores, for the person who waits
    programs: tuple[str, ...] = ()  # names that the binary answers to, when it is a multi-call program
    pinned: str = ""  # the module whose version the binary is to report
    stamps: tuple[str, ...] = ()  # linker symbols, as `package.symbol=value` with {version} and {minor}
    manifests: bool = False  # keep the pinned module's config/ folder as program `<binary>-manifests`

    @property
    def provides(self) -> tuple[str, ...]:
        return (self.binary, *self.programs, *([f"{self.binary}-manifests"] if self.manifests else []))

    def version(self) -> str:
        """Read the version that go.mod pins, such as v1.36.3."""
        found = re.search(rf"^\s+{re.escape(self.pinned)} (v\S+)", (self.module / "go.mod").read_text(), re.MULTILINE)
        if found is None:
            raise ProgramError(f"{self.module / 'go.mod'} does not pin {self.pinned}")
        return found.group(1)

    def ldflags(self) -> str:
        stamps: list[str] = []
        if self.stamps:
            version = self.version()
            minor = version.split(".")[1]
            stamps = [f"-X {stamp.format(version=version, minor=minor)}" for stamp in self.stamps]
        return " ".join(["-s -w", *stamps])

    def key(self, go: Toolchain) -> str:
        """Name everything the binary depends on: sources, pinned modules, flags, toolchain and platform."""
        digest = hashlib.sha256()
        pins = [self.module / "go.mod", self.module / "go.sum"]
        for path in [*pins, *sorted((self.module / self.package).glob("*.go"))]:
            digest.update(f"{path.name} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
        digest.update(f"{self.package} {self.ldflags()} {go.version} {go.platform}".encode())
        return f"{self.binary}-{digest.hexdigest()[:16]}"


# Without these stamps /version says v0.0.0 and `kubeVersion` of charts refuses the cluster.
_KUBE_STAMPS = tuple(
    f"{package}.{field}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for field in ("gitVersion={version}", "gitMajor=1", "gitMinor={minor}", "gitTreeState=clean")
)
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
BUILDS = (
    Build(
        binary="controlplane",
        module=GO_MODULES / "kube",
        package="./controlplane",
        expected="about 10 minutes, once",
        programs=CONTROL_PLANE,
        pinned="k8s.io/kubernetes",
        stamps=_KUBE_STAMPS,
    ),
    Build(
        binary="node",
        module=GO_MODULES / "kube",
        package="./node",
        expected="1 to 3 minutes after the control plane, once",
        programs=("kubelet", "kube-proxy", "coredns"),
        pinned="k8s.io/kubernetes",
        stamps=_KUBE_STAMPS,
    ),
    Build(
        binary="pause",
        module=GO_MODULES / "kube",
        package="./pause",
        expected="seconds",
        pinned="k8s.io/kubernetes",
    ),
    Build(
        binary="lws",
        module=GO_MODULES / "lws",
        package="sigs.k8s.io/lws/cmd",
        expected="about 3 minutes, once",
        pinned="sigs.k8s.io/lws",
        stamps=("sigs.k8s.io/lws/pkg/version.GitVersion={version}",),
        manifests=True,
    ),
    Build(
        binary="helm",
        module=GO_MODULES / "helm",
        package="helm.sh/helm/v4/cmd/helm",
        expected="about 3 minutes, once",
        pinned="helm.sh/helm/v4",
        stamps=("helm.sh/helm/v4/internal/version.version={version}",),
    ),
)


def ensure(names: Iterable[str], *, say: Callable[[str], None]) -> dict[str, Path]:
    """Say where each named program lies, after building what is missing.

    `say` gets a line for each thing a person waits for; with everything in the cache it is not called.
    Raises ProgramError when a build is impossible or fails, ValueError for a name that no build provides.
    """
    found: dict[str, Path] = {}
    directories: dict[str, Path] = {}
    for name in names:
        if asset := _asset(name):
            found[name] = asset
            continue
        build = next((build for build in BUILDS if name in build.provides), None)
        if build is None:
            raise ValueError(f"no build provides {name}")
        if build.binary not in directories:
            directories[build.binary] = obtain(build, directory=cache.root(), say=say)
        found[name] = directories[build.binary] / name
    return found


def _asset(name: str) -> Path | None:
    """Look into KUBEBUILDER_ASSETS, the folder that Kubernetes projects agree on for test binaries."""
    directory = os.environ.get("KUBEBUILDER_ASSETS")
    if not directory or name not in CONTROL_PLANE:
        return None
    path = Path(directory) / name
    return path if os.access(path, os.X_OK) else None


def obtain(build: Build, *, directory: Path, say: Callable[[str], None]) -> Path:
    """Return the folder below `directory` with the build's programs, built first if it is not there.

    Any number of processes may call this at once: one builds, the others wait and take its result.
    """
    go = toolchain.find(build.module, directory=directory, say=say)
    target = directory / "bin" / build.key(go)
    if not target.exists():
        with cache.locked(target, say):
            if not target.exists():
                with cache.half_done(target) as unfinished:
                    _go_build(build, go, unfinished, say)
                say(f"{build.binary} is in {target}")
    return target


def _go_build(build: Build, go: Toolchain, directory: Path, say: Callable[[str], None]) -> None:
    also = f" ({', '.join(build.programs)})" if build.programs else ""
    say(f"building {build.binary}{also} from Go modules with {go.version}: {build.expected}")
    log = directory / "build.log"
    flags = ["-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", build.ldflags()]
    process = spawn(
        "go build",
        [go.go, "-C", build.module, "build", *flags, "-o", directory / build.binary, build.package],
        log=log,
        env=toolchain.BUILD_ENVIRONMENT,
    )
    started = time.monotonic()
    try:
        while process.is_running:
            try:
                process.popen.wait(PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"building {build.binary}: {_progress(log)}, {time.monotonic() - started:.0f} s")
    finally:
        process.stop()
    if process.popen.returncode:
        raise ProgramError(f"building {build.binary} failed:\n{process.last_words()}")
    for program in build.programs:
        (directory / program).symlink_to(build.binary)
    if build.manifests:
        source = run([go.go, "list", "-m", "-f", "{{.Dir}}", build.pinned], cwd=build.module).strip()
        _copy_writable(Path(source) / "config", directory / f"{build.binary}-manifests")


def _progress(log: Path) -> str:
    """`go build -v` names each module that it downloads and each package that it compiles."""
    lines = log.read_text(errors="replace").splitlines()
    downloads = sum(line.startswith("go: downloading") for line in lines)
    return f"{downloads} modules downloaded, {len(lines) - downloads} packages compiled"


def _copy_writable(source: Path, target: Path) -> None:
    """Copy a folder of the read-only module cache so that it can be removed again."""
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
