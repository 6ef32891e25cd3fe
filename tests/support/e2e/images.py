"""The project's images for the end-to-end run, built by `images/build.py` once for each content."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from kvpp_devcluster import cache
from kvpp_devcluster.processes import ProgramError, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("operator", "router", "engine-simulator")
CONTENT = (
    "images/build.py",
    *(f"images/{name}" for name in NAMES),
    "operator/src",
    "requirements.lock",
    "pyproject.toml",
)
PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}
PROGRESS_SECONDS = 15.0
BUILDS_KEPT = 2


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def reference(name: str) -> str:
    return f"localhost/kvpp-{name}:{version()}"


def ensure(say: Callable[[str], None]) -> Path:
    """Return the folder with an archive of each image. Raises `ProgramError` with the end of what the builder said."""
    base = os.environ.get("BASE") or "debian"
    folder = cache.root() / "e2e"
    target = folder / f"images-{key(base)}"
    if target.exists():
        target.touch()
        return target
    with cache.locked(target, say), cache.half_done(target) as unfinished:
        _build(base, unfinished, say)
    outdated = sorted(folder.glob("images-*"), key=lambda path: path.stat().st_mtime)[:-BUILDS_KEPT]
    for path in outdated:
        subprocess.run(["rm", "-rf", str(path)], check=True)
    return target


def key(base: str) -> str:
    digest = hashlib.sha256(base.encode())
    for path in _files():
        digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files() -> Iterable[Path]:
    for name in CONTENT:
        place = ROOT / name
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _build(base: str, folder: Path, say: Callable[[str], None]) -> None:
    say(f"building images {', '.join(NAMES)} on {base}: 2 to 5 minutes, once for each content")
    log = folder / "build.log"
    command: list[str | Path] = [sys.executable, ROOT / "images/build.py", "--base", base, "--archive", folder, *NAMES]
    builder = spawn("images/build.py", command, log=log)
    started = time.monotonic()
    try:
        while builder.is_running:
            try:
                builder.popen.wait(PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                done = [path.stem for path in sorted(folder.glob("*.tar"))]
                say(f"building images: {time.monotonic() - started:.0f} s, done: {', '.join(done) or 'none'}")
    finally:
        builder.stop()
    if builder.popen.returncode:
        raise ProgramError(f"building the images failed:\n{builder.last_words(30)}")
    say(builder.last_words(len(NAMES)))


def changed(archive: Path, tag: str, target: Path) -> Path:
    """Write an image that differs from another in a label and its tag: an OCI archive's config, manifest and index anew."""
    blobs: dict[str, bytes] = {}
    with tarfile.open(archive) as source:
        for member in source:
            if file := source.extractfile(member):
                blobs[member.name.removeprefix("./")] = file.read()
    index = json.loads(blobs["index.json"])
    manifest = json.loads(blobs[_path(index["manifests"][0])])
    configuration = json.loads(blobs[_path(manifest["config"])])
    configuration["config"].setdefault("Labels", {})["next"] = tag
    manifest["config"] |= _blob(blobs, configuration)
    index["manifests"][0] |= _blob(blobs, manifest)
    name = reference("operator").rpartition(":")[0]
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": f"{name}:{tag}"}
    blobs["index.json"] = json.dumps(index).encode()
    with tarfile.open(target, "w") as tar:
        for path, content in blobs.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target


def _path(descriptor: dict[str, str]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _blob(blobs: dict[str, bytes], value: object) -> dict[str, str | int]:
    content = json.dumps(value).encode()
    digest = hashlib.sha256(content).hexdigest()
    blobs[f"blobs/sha256/{digest}"] = content
    return {"digest": f"sha256:{digest}", "size": len(content)}
