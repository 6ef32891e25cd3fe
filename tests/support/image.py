"""A built image, unpacked, and its programs run as its user on a root that cannot be written. Needs root and buildah."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import specs

ROOT = specs.ROOT
USER = 65532
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec chroot --userspec=65532:65532 "$@"'


class Image:
    """The built image, unpacked, and its configuration."""

    def __init__(self, reference: str) -> None:
        sys.path.insert(0, str(ROOT / "images"))
        try:
            from build import buildah  # type: ignore[import-not-found]  # noqa: PLC0415 - a script, not a package
        finally:
            sys.path.pop(0)
        self._buildah = buildah
        self.container: str = buildah("from", reference)
        self.root = Path(buildah("mount", self.container))
        self.inspected: str = buildah("inspect", "--type", "image", reference)
        self.config: dict[str, Any] = json.loads(self.inspected)["OCIv1"]["config"]

    def remove(self) -> None:
        self._buildah("rm", self.container)

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run as the image's user, with its environment, on a root that cannot be written."""
        environment = dict(assignment.split("=", 1) for assignment in self.config.get("Env", [PATH]))
        argv = ["unshare", "--mount", "sh", "-euc", SHELL, "sh", str(self.root), str(self.root), *command]
        return subprocess.run(
            argv, input=stdin, env=environment, text=True, capture_output=True, check=False, timeout=120
        )

    def writable(self) -> list[str]:
        """What the image's user could change."""
        found = []
        for path in self.root.rglob("*"):
            status = path.lstat()
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                continue
            shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # /tmp and its like
            if status.st_uid == USER or (status.st_mode & stat.S_IWOTH and not shared):
                found.append(str(path.relative_to(self.root)))
        return found

    def gives_rights_away(self) -> list[str]:
        files = (path for path in self.root.rglob("*") if not path.is_symlink() and path.is_file())
        return [str(path) for path in files if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]


@contextmanager
def built(*names: str) -> Iterator[Image]:
    """The last of these images, built as `make images` builds it where no registry can be reached."""
    command = [sys.executable, str(ROOT / "images" / "build.py"), "--base", "debian", *names]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    image = Image(done.stdout.splitlines()[-1].split()[0])
    yield image
    image.remove()
