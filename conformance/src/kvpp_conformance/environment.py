"""The environments in which real vLLM releases can be imported, and the unpacked sources of vLLM Ascend.

Built on first use under the project's cache folder, never in the tree:

    conformance/base-<key>/           a virtual environment: torch and every library that vLLM's parser imports
    conformance/vllm-<version>-<key>/ one per release: the vLLM wheel alone; sees the base through a .pth file
    conformance/ascend-<version>/     the source package, unpacked, not built

The key hashes what an environment is made of, so a changed lock makes a new one. Each folder is guarded by a lock and
counts only once it is complete. About 4 GB for torch, 1 GB for each release.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvpp_conformance.releases import PAIRS
from kvpp_devcluster import cache

Say = Callable[[str], None]

LOCKS = Path(__file__).resolve().parents[2] / "locks"
UV = "uv==0.13.9"
COMPLETE = ".complete"


class EnvironmentProblem(RuntimeError):  # noqa: N818  (what the user is told is a problem, not a stack)
    """A package can't be had or does not install; the text names it and carries the end of the installer's output."""


def root() -> Path:
    return cache.root() / "conformance"


def ensure_base(say: Say) -> Path:
    """The environment with torch; its folder."""
    lock = LOCKS / "base.txt"
    target = root() / f"base-{_key(lock.read_text(), UV)}"

    def build() -> None:
        _run([sys.executable, "-m", "venv", str(target)], "the virtual environment (Debian: python3-venv)")
        _run([_python(target), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV], UV)
        _install(target, target, ["--no-deps", "-r", str(lock)], what=f"the packages of {lock.name}")

    _once(target, build, say, "torch and vLLM's libraries, about 4 GB")
    return target


def ensure_vllm(version: str, say: Say) -> Path:
    """The interpreter that can `import vllm` of that release."""
    base = ensure_base(say)
    target = root() / f"vllm-{version}-{_key(base.name, version)}"

    def build() -> None:
        _run([sys.executable, "-m", "venv", "--without-pip", str(target)], "the virtual environment")
        (_packages(target) / "base.pth").write_text(f"{_packages(base)}\n")
        _install(base, target, ["--no-deps", f"vllm=={version}"], what=f"vllm=={version}, which must have a wheel")

    _once(target, build, say, f"vLLM {version}")
    return Path(_python(target))


def ensure_ascend(version: str, say: Say) -> Path:
    """The unpacked source of a vLLM Ascend release (the folder that holds `vllm_ascend/`).

    pip unpacks a source package, fails to build it (there is no CANN here) and, told so, leaves what it unpacked.
    """
    target = root() / f"ascend-{version}"

    def build() -> None:
        target.mkdir()
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--pre", "--no-deps", "--no-binary=:all:",
            "--no-build-isolation", "--no-clean", "--dest", str(target), f"vllm-ascend=={version}",
        ]  # fmt: skip
        said = subprocess.run(  # noqa: S603  (its end with an error is expected)
            command, env={**os.environ, "TMPDIR": str(target)}, capture_output=True, text=True, check=False
        )
        found = [path.parent for path in target.glob("pip-*/*/vllm_ascend")]
        if not found:
            raise EnvironmentProblem(f"no source package of vllm-ascend {version}:\n{_end(said.stdout + said.stderr)}")
        for kept in ("vllm_ascend", "vllm_ascend.egg-info"):  # with it Python sees the plugin as installed
            (found[0] / kept).rename(target / kept)
        for rest in target.glob("pip-*"):
            shutil.rmtree(rest)

    _once(target, build, say, f"source of vLLM Ascend {version}")
    return target


def ensure(releases: list[str], say: Say) -> dict[str, str]:
    """Everything for these vLLM Ascend releases; what could not be had, with the reason, is said and returned."""
    missing: dict[str, str] = {}
    for release in releases:
        try:
            ensure_vllm(PAIRS[release], say)
            ensure_ascend(release, say)
        except EnvironmentProblem as problem:
            missing[release] = str(problem)
            say(f"{release}: {problem}")
    return missing


def is_built(release: str) -> bool:
    """Whether `ensure` would have nothing to do for this release."""
    base = root() / f"base-{_key((LOCKS / 'base.txt').read_text(), UV)}"
    parts = (base, root() / f"vllm-{PAIRS[release]}-{_key(base.name, PAIRS[release])}", root() / f"ascend-{release}")
    return all((part / COMPLETE).exists() for part in parts)


def _once(target: Path, build: Callable[[], None], say: Say, what: str) -> None:
    if (target / COMPLETE).exists():
        return
    with cache.locked(target, say):
        if (target / COMPLETE).exists():
            return
        shutil.rmtree(target, ignore_errors=True)  # half of it, from a run that was killed
        say(f"installing {what} into {target}")
        started = time.monotonic()
        build()
        (target / COMPLETE).touch()
        say(f"installed {what}: {time.monotonic() - started:.0f} s, {_size(target) / 2**20:.0f} MB")


def _install(tool: Path, target: Path, arguments: list[str], *, what: str) -> None:
    """Install with the uv of `tool`; an index that is set for pip is used by uv too."""
    index = {"UV_DEFAULT_INDEX": url} if (url := os.environ.get("PIP_INDEX_URL")) else {}
    command = [
        str(tool / "bin" / "uv"),
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        "--python",
        _python(target),
        *arguments,
    ]
    _run(command, what, index | dict(os.environ))


def _run(command: list[str], what: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise EnvironmentProblem(f"can't install {what}:\n{_end(done.stdout + done.stderr)}")


def _end(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])


def _python(environment: Path) -> str:
    return str(environment / "bin" / "python")


def _packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _key(*parts: str) -> str:
    own = (platform.python_version(), platform.machine(), *parts)
    return hashlib.sha256("\0".join(own).encode()).hexdigest()[:12]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
