"""The real mooncake_master on loopback with the arguments that we render."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from specs import ROOT, UNIFIED

from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import plan_pool
from kvpp_operator.render.pool.master import arguments

ADDRESS = "127.0.0.1"
LIBRARIES = (ROOT / "images" / "pool" / "debian-packages").read_text().split()
"""What its package leaves to the system."""


@pytest.fixture(scope="session")
def master(packages: Callable[[str], Path], pytestconfig: pytest.Config) -> Path:
    program = packages("mooncake-0.3.13.post1") / "mooncake" / "mooncake_master"
    program.chmod(0o755)
    if missing(program):
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"installing {' '.join(LIBRARIES)}", file=sys.stderr, flush=True)
        install()
        assert missing(program) == []
    return program


def missing(program: Path) -> list[str]:
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines() if "not found" in line]


def install() -> None:
    hint = f"mooncake_master wants {' '.join(LIBRARIES)}"
    assert shutil.which("apt-get"), f"{hint}: install them with this system's package manager"
    assert os.geteuid() == 0, f"{hint}: apt-get install {' '.join(LIBRARIES)}"
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *LIBRARIES]):
        done = subprocess.run(["apt-get", *command], check=False, capture_output=True, text=True, env=quiet)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def ports(free_ports: Callable[..., list[int]]) -> dict[str, int]:
    return dict(zip(("rpc", "metrics"), free_ports(2), strict=True))


@pytest.fixture
def start(master: Path, plan_of: Any, pooled: Any, ports: dict[str, int], service: Any) -> Callable[..., Any]:
    spec = UNIFIED | {"engine": {"version": "latest"}}

    def start(*more: str) -> Any:
        plan = plan_of(
            pooled(spec, {"backend": "Mooncake", "mooncake": {"layerwise": {}, "master": {"args": list(more)}}})
        )
        pool = plan_pool(plan.resolved, "", ports)
        return service([str(master), *arguments(Plan(plan.resolved, plan.roles, plan.engines, pool))])

    return start


def test_it_starts_with_our_arguments(start: Any, ports: dict[str, int], eventually: Any, ask: Any) -> None:
    process = start()
    eventually(lambda: ask(ADDRESS, ports["metrics"], "/health")[0] == 200, what=process.said)
    assert "master_total_capacity_bytes 0" in ask(ADDRESS, ports["metrics"], "/metrics")[1]
    socket.create_connection((ADDRESS, ports["rpc"]), 5).close()  # as our probes and our engines' wait do
    said = process.said()
    assert "default_kv_lease_ttl=11000" in said
    assert "client_ttl=120" in said
    process.stop()


def test_the_users_arguments_win(start: Any, ports: dict[str, int], eventually: Any, ask: Any) -> None:
    process = start("--eviction_ratio=0.2", "--client_ttl=60")
    eventually(lambda: ask(ADDRESS, ports["metrics"], "/health")[0] == 200, what=process.said)
    assert "eviction_ratio=0.2," in process.said()
    assert "client_ttl=60," in process.said()


def test_it_starts_again_on_the_same_ports(start: Any, ports: dict[str, int], eventually: Any, ask: Any) -> None:
    for _ in range(2):
        process = start()
        eventually(lambda: ask(ADDRESS, ports["metrics"], "/health")[0] == 200, what=process.said)
        process.stop()


def test_an_argument_that_it_does_not_know_is_an_error(start: Any) -> None:
    process = start("--evict_ratio=0.2")
    assert process.wait() == 1
    assert "unknown command line flag 'evict_ratio'" in process.said()
