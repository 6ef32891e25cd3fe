"""One cluster of real hosts for the session, with the operator in it; scenarios use it one after the other."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e.place import Place

from kvpp_devcluster.hosts import HostCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STARTED = time.monotonic()


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # of the whole run
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def say() -> Callable[[str], None]:
    def line(message: str) -> None:
        print(f"{time.monotonic() - STARTED:6.0f} s  {message}", flush=True)

    return line


@pytest.fixture(scope="session")
def place(say: Callable[[str], None]) -> Iterator[Place]:
    """Give four hosts with our images, and nothing else."""
    if "KVPP_E2E_IMAGES" not in os.environ:
        pytest.fail("these tests are run by `make e2e`")
    archives = Path(os.environ["KVPP_E2E_IMAGES"])
    with HostCluster(with_lws=True, logs=Path(os.environ["KVPP_E2E_LOGS"]), say=say) as cluster:
        say("control plane, LeaderWorkerSet, CoreDNS and four hosts are up")
        made = Place(cluster, say, archives)
        made.make_host_files()
        cluster.load(sorted(archives.glob("*.tar")))
        say("images are loaded on every host")
        try:
            yield made
        finally:
            made.dump()
            if os.environ.get("KVPP_E2E_KEEP"):
                say("a shell in the cluster: kubectl works; exit ends everything")
                environment = {**os.environ, **cluster.environment()}
                subprocess.run([os.environ.get("SHELL", "bash")], env=environment, check=False)


@pytest.fixture(scope="session")
def operated(place: Place) -> Place:
    """Give the place with the operator installed by its chart."""
    place.install()
    return place
