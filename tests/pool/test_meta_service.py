"""The real MetaService (memcache-hybrid from the package index, on loopback) with the files that we render."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from specs import UNIFIED

from kvpp_operator.catalogue import pools
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import plan_pool
from kvpp_operator.render.pool.config import script
from kvpp_operator.render.pool.meta_service import config
from kvpp_operator.rules import memcache_keys

ADDRESS = "127.0.0.1"
MEMCACHE = {"backend": "Memcache"}
VERSIONS = ("1.2.1", "1.3.0")
ENDS = {"1.2.1": (0, -signal.SIGABRT), "1.3.0": (0,)}
"""1.2.1 may fall over its own memory on the way out, when everything is over."""

SERVER = {"1.2.1": "0.29.0rc1", "1.3.0": "0.30.0rc2"}

Ports = dict[str, int]


@pytest.fixture
def ports(free_ports: Callable[[int], list[int]]) -> Ports:
    return dict(zip(("rpc", "store", "http"), free_ports(3), strict=True))


@pytest.fixture
def rendered(plan_of: Callable[..., Plan], pooled: Callable[..., Any], ports: Ports) -> Callable[..., Manifest]:
    """The ConfigMap of a MetaService whose ports were planned as those of a host are."""

    def rendered(
        meta_config: dict[str, str] | None = None, *, version: str = "1.3.0", given: Ports = ports
    ) -> Manifest:
        spec = UNIFIED | {"engine": {"version": SERVER[version]}}
        plan = plan_of(pooled(spec, {"backend": "Memcache", "memcache": {"metaConfig": meta_config or {}}}))
        pool = plan_pool(plan.resolved, "", given)
        return config(Plan(plan.resolved, plan.roles, plan.engines, pool))

    return rendered


@pytest.mark.parametrize("version", VERSIONS)
def test_it_starts_with_our_file(
    version: str, rendered: Any, ports: Ports, meta_service: Any, until_healthy: Any
) -> None:
    service = meta_service(rendered(version=version), ADDRESS, version=version)
    found = until_healthy(service, ports["http"])
    assert found["status"] == "ok"
    for part in ("rpc", "store"):
        socket.create_connection((ADDRESS, ports[part]), 5).close()
    assert service.stop() in ENDS[version]


def test_its_metrics(rendered: Any, ports: Ports, meta_service: Any, until_healthy: Any, ask: Any) -> None:
    until_healthy(meta_service(rendered(), ADDRESS), ports["http"])
    status, metrics = ask(ADDRESS, ports["http"], "/metrics")
    assert status == 200
    assert 'memcache_total_capacity_bytes{medium="dram"} 0' in metrics


def test_it_starts_again_on_the_same_ports(rendered: Any, ports: Ports, meta_service: Any, until_healthy: Any) -> None:
    for _ in range(2):
        service = meta_service(rendered(), ADDRESS)
        until_healthy(service, ports["http"])
        assert service.stop() == 0


def test_a_wrong_file_is_an_error_of_the_pod(rendered: Any, meta_service: Any) -> None:
    """The package says one line and ends with 0, and a Deployment would show `Completed` over and over."""
    wrong = rendered()
    wrong["data"]["mmc-meta.conf"] += "ock.mmc.evict_treshold_high = 85\n"
    service = meta_service(wrong, ADDRESS)
    assert service.wait() == 1
    assert "Invalid key <ock.mmc.evict_treshold_high>" in service.said()


def test_a_wrong_file_does_not_get_there(plan_of: Callable[..., Plan], pooled: Callable[..., Any]) -> None:
    for wrong in ({"ock.mmc.evict_treshold_high": "85"}, {"ock.mmc.evict_threshold_high": "120"}):
        with pytest.raises(AssertionError, match=r"ock\.mmc\.evict_t"):
            plan_of(pooled(UNIFIED, {"backend": "Memcache", "memcache": {"metaConfig": wrong}}))


def test_a_port_of_somebody_else_is_avoided_by_the_plan(
    rendered: Any, ports: Ports, meta_service: Any, until_healthy: Any
) -> None:
    """8000 on a host is an engine's API; with ports of a block of its own the service starts beside it."""
    with socket.socket() as engine:
        engine.bind((ADDRESS, 0))
        engine.listen()
        clash = ports | {"http": engine.getsockname()[1]}
        service = meta_service(rendered(given=clash), ADDRESS)
        assert service.wait() == 1
        service = meta_service(rendered(given=ports), ADDRESS)
        until_healthy(service, ports["http"])
        assert service.stop() == 0


def test_it_takes_what_the_user_may_say(rendered: Any, ports: Ports, meta_service: Any, until_healthy: Any) -> None:
    edited = {"ock.mmc.evict_threshold_high": "85", "ock.mmc.evict_threshold_low": "70", "ock.mmc.log_level": "debug"}
    service = meta_service(rendered(edited), ADDRESS)
    until_healthy(service, ports["http"])
    service.stop()
    assert "ock.mmc.evict_threshold_high = 85" in service.said()


def test_why_the_probe_is_no_http_get(rendered: Any, ports: Ports, meta_service: Any, until_healthy: Any) -> None:
    """To a client that says it will close, as the kubelet does, it never sends the body. When it does, httpGet will do."""
    service = meta_service(rendered(), ADDRESS)
    until_healthy(service, ports["http"])
    with socket.create_connection((ADDRESS, ports["http"]), 5) as connection:
        connection.settimeout(60)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        head = connection.recv(4096)
        assert head.startswith(b"HTTP/1.1 200")
        assert head.endswith(b"\r\n\r\n")
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.recv(4096)


def probe(folder: Path, port: int, question: str) -> subprocess.CompletedProcess[str]:
    program = folder / "health.py"
    program.write_text(script("health.py"))
    command = [sys.executable, str(program), str(port), question]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "META_POD_IP": ADDRESS}
    )


def test_the_probe(
    rendered: Any, ports: Ports, meta_service: Any, until_healthy: Any, *, room: Path, eventually: Any
) -> None:
    assert "no answer" in probe(room, ports["http"], "live").stdout
    assert probe(room, ports["http"], "live").returncode == 1
    service = meta_service(rendered(), ADDRESS)
    until_healthy(service, ports["http"])
    for question in ("live", "ready"):  # on a busy machine an answer may come later than a probe waits
        eventually(lambda question=question: probe(room, ports["http"], question).returncode == 0, what=service.said)
    assert "no answer" not in (elected := probe(room, ports["http"], "elected")).stdout
    assert elected.returncode == 1  # alone, it was never elected


@pytest.fixture
def asked(packages: Callable[[str], Path], room: Path, isolated: Any) -> Callable[[str, Path], str]:
    """What the package itself says to a file, without our start."""
    (room / "tmp").mkdir()

    def asked(version: str, file: Path) -> str:
        code = "from memcache_hybrid import MetaService; print('came back with', MetaService.main())"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(packages(f"memcache-{version}")),
            "MMC_META_CONFIG_PATH": str(file),
        }
        command = isolated(room / "tmp", [sys.executable, "-c", code])
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        return f"{done.stdout}{done.stderr}"

    return asked


LAST = "ock.mmc.last = 1\n"
"""No such key: the service says so after all others, and does not start."""

SAMPLES = {"true or false": "true", memcache_keys.TEXT.words: "a"}


def sample(form: memcache_keys.Form) -> str:
    """A value that a form takes."""
    candidates = [SAMPLES.get(form.words, ""), *re.findall(r"\d+|\w+", form.words.removeprefix("one of "))]
    return next(str(text) for text in candidates if text and form.takes(text))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_key_of_our_table_is_known_to_it(version: str, asked: Any, room: Path) -> None:
    known = {key for key in memcache_keys.META if version != "1.2.1" or key not in pools.SINCE_1_3_0}
    lines = [f"{key} = {sample(memcache_keys.META[key])}\n" for key in sorted(known)]
    (room / "all.conf").write_text("".join(lines) + LAST)
    said = asked(version, room / "all.conf")
    assert re.findall(r"Invalid key <(.*)>", said) == ["ock.mmc.last"], said[-2000:]


@pytest.mark.parametrize("key", sorted(pools.SINCE_1_3_0))
def test_a_key_of_a_later_version_stops_an_older_one(key: str, asked: Any, room: Path) -> None:
    (room / "one.conf").write_text(f"{key} = {sample(memcache_keys.META[key])}\n{LAST}")
    assert f"Invalid key <{key}>" in asked("1.2.1", room / "one.conf")


def test_a_link_is_refused_by_the_package(asked: Any, room: Path) -> None:
    """Why engines mount a single file, and the service's own is written when it starts."""
    (room / "real.conf").write_text("ock.mmc.log_level = info\n")
    (room / "link.conf").symlink_to("real.conf")
    said = asked("1.3.0", room / "link.conf")
    assert "is a symlink" in said
    assert "came back with -1" in said
