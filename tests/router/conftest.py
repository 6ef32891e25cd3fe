"""The P/D proxy itself, out of vLLM Ascend's source package, and what it imports: fetched once, kept in the cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

IMAGES = Path(__file__).parents[2] / "images"
sys.path += [str(IMAGES / "engine-simulator" / "src")]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from router_rig import RealProxy

RELEASE = "0.30.0rc2"


@pytest.fixture(scope="session")
def proxy_files() -> tuple[Path, Path]:
    """The script and the folder of the packages that it imports."""
    files = [IMAGES / "router" / name for name in ("proxy-sources.txt", "requirements.lock", "fetch_proxy.py")]
    recipe = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    folder = cache() / f"router-proxy-{recipe}"
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        run(files[2], unfinished / "scripts", RELEASE)
        pip = ("-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:")
        run(*pip, "--target", unfinished / "packages", "--requirement", files[1])
        try:
            unfinished.rename(folder)
        except OSError:  # another run was faster
            assert folder.exists()
    return folder / "scripts" / RELEASE / "load_balance_proxy_server_example.py", folder / "packages"


def run(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, *map(str, arguments)], check=True)


def cache() -> Path:
    given = os.environ.get("KVPP_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvpp-operator"


@pytest.fixture(scope="module")
def proxy(proxy_files: tuple[Path, Path]) -> Iterator[RealProxy]:
    """One proxy for all tests of a module: each new agent has to put its members right anyway."""
    from router_rig import RealProxy  # noqa: PLC0415 - needs the path from above

    running = RealProxy(*proxy_files)
    running.start()
    yield running
    running.kill()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=180)) as session:
        yield session


@pytest.fixture
def images() -> Path:
    return IMAGES
