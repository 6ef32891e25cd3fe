"""The image of the pause container, written without an image builder."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(program: Path, archive: Path, *, name: str) -> Path:
    """Write an archive as `docker save` does, with one program in one layer."""
    layer = _tar({"pause": (program.read_bytes(), 0o755)})
    machine = platform.machine()
    configuration = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": (layer, 0o644),
        "config.json": (json.dumps(configuration).encode(), 0o644),
        "manifest.json": (json.dumps(manifest).encode(), 0o644),
    }
    archive.write_bytes(_tar(files))
    return archive


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
