# noqa: INP001 - a script beside what it builds, no package
"""Build the project's images with buildah, without a daemon and without a registry if need be.

    images/build.py [NAME...]                  all but the engine's, or the named ones, on the bases that their Containerfiles name
    images/build.py --base debian [NAME...]    on bases made here from Debian's packages (needs root and mmdebstrap)
    images/build.py --base DIR|TAR [NAME...]   on a root file system of yours that has Python and its venv module
    images/build.py --base IMAGE [NAME...]     on an image

The default of `--base` is the environment's BASE. Each image is called localhost/kvpp-NAME:VERSION. `--archive DIR` also
writes DIR/kvpp-NAME.tar, an OCI archive to load on a node. Storage and bases stay in `$KVPP_CACHE/images`, outside the tree;
nothing goes to /var/lib/containers.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "images"

ONLY_BY_NAME = ("engine",)
"""Its base has many gigabytes, and nobody needs it."""

DEBIAN = "bookworm"
# usr-is-merged: else Debian 12 takes usrmerge, which brings 47 MB of Perl.
RUN_PACKAGES = ("python3", "usr-is-merged")
BUILD_PACKAGES = (*RUN_PACKAGES, "python3-venv", "ca-certificates")
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
# Nobody becomes root in these images, so no program needs the right to.
NO_SETUID = 'find "$1" -xdev -type f -perm /6000 -exec chmod a-s {} +'
# Documentation and translations; nobody reads them in a container.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class BuildError(Exception):
    """What stopped the build, in words for the person who asked for it."""


@dataclass(frozen=True)
class Built:
    """One image, and what it cost."""

    reference: str
    seconds: float
    megabytes: float
    archive: Path | None = None


def cache() -> Path:
    """Where everything that is built lies: `$KVPP_CACHE`, else in the user's cache folder."""
    given = os.environ.get("KVPP_CACHE")
    folder = (
        Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvpp-operator"
    )
    return folder.absolute() / "images"


def version() -> str:
    """Package, chart and images have one version."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def names() -> list[str]:
    """Every image with a Containerfile; the operator's first, because others build on it."""
    found = sorted(path.parent.name for path in FOLDER.glob("*/Containerfile"))
    return sorted(found, key=lambda name: name != "operator")


def wanted() -> list[str]:
    """What is built when nobody names anything."""
    return [name for name in names() if name not in ONLY_BY_NAME]


def buildah(*arguments: str | Path) -> str:
    """Run buildah on our own storage; vfs and chroot need no kernel module, no FUSE and no runtime."""
    store = cache() / "storage"
    flags = ["--storage-driver", "vfs", "--root", str(store), "--runroot", str(store / "run")]
    return run(["buildah", *flags, *map(str, arguments)])


def run(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - buildah and mmdebstrap, with arguments of ours
            command, check=False, text=True, capture_output=True
        )
    except FileNotFoundError:
        raise BuildError(f"{command[0]} is missing: on Debian, apt-get install buildah mmdebstrap") from None
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\nended with {done.returncode}\n{done.stderr.strip()}")
    return done.stdout.strip()


def own_packages(name: str) -> tuple[str, ...]:
    """Debian packages that an image needs at run time beside Python: images/NAME/debian-packages."""
    listed = FOLDER / name / "debian-packages"
    return tuple(listed.read_text("utf-8").split()) if listed.exists() else ()


def debian_base(kind: str, packages: tuple[str, ...]) -> str:
    """Make an image of Debian packages, once; the name tells what is in it."""
    recipe = hashlib.sha256(repr((DEBIAN, packages, LEFT_OUT, NO_SETUID)).encode()).hexdigest()[:12]
    reference = f"localhost/kvpp-debian-{kind}:{recipe}"
    if is_stored(reference):
        return reference
    archive = cache() / f"debian-{kind}-{recipe}.tar"
    unfinished = archive.with_suffix(f".{os.getpid()}.tmp")
    if not archive.exists():
        sys.stdout.write(f"making {archive} from Debian packages: 1 to 4 minutes, once\n")
        options = ["--variant=essential", "--format=tar", f"--include={','.join(packages)}", f"--hook-dir={MERGED_USR}"]
        options += [f"--customize-hook={NO_SETUID}", "--skip=output/dev"]
        options += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
        run(["mmdebstrap", *options, DEBIAN, str(unfinished)])
        unfinished.rename(archive)
    return imported(archive, reference)


def imported(root: Path, reference: str) -> str:
    """Make an image of a root file system: a folder, or an archive of one."""
    container = buildah("from", "scratch")
    try:
        buildah("add", container, root, "/")
        buildah("config", "--cmd", "", container)
        buildah("commit", container, reference)
    finally:
        buildah("rm", container)
    return reference


def is_stored(reference: str) -> bool:
    """Whether an image is in the storage."""
    return bool(buildah("images", "--quiet", "--filter", f"reference={reference}"))


def build(name: str, arguments: dict[str, str], archives: Path | None) -> Built:
    reference = f"localhost/kvpp-{name}:{version()}"
    started = time.monotonic()
    options = [option for key, value in arguments.items() for option in ("--build-arg", f"{key}={value}")]
    if CERTIFICATES.exists():  # the machine's own, which may hold a company's; mounted, so no layer has them
        options += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    buildah(
        "bud",
        "--isolation",
        "chroot",
        "--layers=false",
        *options,
        "--file",
        FOLDER / name / "Containerfile",
        "--tag",
        reference,
        ROOT,
    )
    archive = None
    if archives is not None:
        archives.mkdir(parents=True, exist_ok=True)
        archive = archives / f"kvpp-{name}.tar"
        archive.unlink(missing_ok=True)
        buildah("push", "--quiet", reference, f"oci-archive:{archive}:{reference}")
    return Built(reference, time.monotonic() - started, size(reference), archive)


def size(reference: str) -> float:
    """Megabytes of the unpacked image."""
    container = buildah("from", reference)
    try:
        root = Path(buildah("mount", container))
        files = (path.lstat() for path in root.rglob("*"))
        return sum(found.st_size for found in files) / 1e6
    finally:
        buildah("rm", container)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(names())}; default: all")
    parser.add_argument("--base", default=os.environ.get("BASE", ""), help="`debian`, a root file system, or an image")
    parser.add_argument("--archive", type=Path, metavar="DIR", help="also write an OCI archive of each image to DIR")
    parser.add_argument(
        "--build-arg", action="append", default=[], metavar="NAME=VALUE", help="handed to every Containerfile"
    )
    parser.add_argument("--clean", action="store_true", help="remove storage and bases, and build nothing")
    given = parser.parse_args()
    if given.clean:
        shutil.rmtree(cache(), ignore_errors=True)
        return 0
    if unknown := set(given.names) - set(names()):
        parser.error(f"no Containerfile for {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    try:
        built = [build(name, arguments(name, given), given.archive) for name in given.names or wanted()]
    except BuildError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    for image in built:
        place = f"  {image.archive} ({image.archive.stat().st_size / 1e6:.0f} MB)" if image.archive else ""
        sys.stdout.write(f"{image.reference:<40} {image.megabytes:6.0f} MB {image.seconds:6.0f} s{place}\n")
    return 0


def arguments(name: str, given: argparse.Namespace) -> dict[str, str]:
    """Build arguments: the version, the bases, a mirror of the package index if the environment names one."""
    found = {"VERSION": version()}
    if given.base in ("debian", "debootstrap"):
        found["BASE"] = debian_base("run", (*RUN_PACKAGES, *own_packages(name)))
        found["BUILD_BASE"] = debian_base("build", BUILD_PACKAGES)
    elif given.base and Path(given.base).exists():
        found["BASE"] = imported(Path(given.base).resolve(), "localhost/kvpp-base:given")
    elif given.base:
        found["BASE"] = given.base
    if mirror := os.environ.get("PIP_INDEX_URL"):
        found["PIP_INDEX_URL"] = mirror
    return found | dict(option.split("=", 1) for option in given.build_arg)


if __name__ == "__main__":
    sys.exit(main())
