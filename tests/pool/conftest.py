"""Plans and manifests of specs with a pool, and the real services as processes."""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from specs import ROOT, deployment, planned

from kvpp_devcluster import cache
from kvpp_devcluster.cluster import temporary_root
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.render.objects import objects, revision_of

LOCKS = ROOT / "images" / "pool"
START_SECONDS = 240.0
STOP_SECONDS = 120.0
"""What is awaited takes a second or two; on a machine busy with other things, much longer."""


def plan_of(body: dict[str, Any]) -> Plan:
    """The plan of a spec that no rule refuses."""
    return planned(body)


@pytest.fixture(name="plan_of")
def plan_of_fixture() -> Callable[[dict[str, Any]], Plan]:
    return plan_of


@pytest.fixture(name="objects_of")
def objects_of_fixture() -> Callable[[dict[str, Any]], dict[tuple[str, str], Manifest]]:
    """(kind, name) → manifest of everything that a deployment owns."""

    def objects_of(body: dict[str, Any]) -> dict[tuple[str, str], Manifest]:
        plan = plan_of(body)
        made = objects(plan, revision_of(plan))
        return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in made}

    return objects_of


@pytest.fixture(name="pooled")
def pooled_fixture() -> Callable[..., dict[str, Any]]:
    """A deployment with a pool; `changes` as in `specs.deployment`."""

    def pooled(spec: dict[str, Any], pooling: dict[str, Any], **changes: Any) -> dict[str, Any]:
        return deployment(spec | {"pooling": copy.deepcopy(pooling)}, **changes)

    return pooled


@pytest.fixture(scope="session")
def packages(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Folder of a lock's packages (`memcache-1.3.0`), installed outside the tree on the first call on this machine."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(message: str) -> None:
        with capture.global_and_fixture_disabled():
            print(message, file=sys.stderr, flush=True)

    def folder(name: str) -> Path:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        target = cache.root() / "pool" / f"{name}-py{version}"
        with cache.locked(target, say):
            if not target.exists():
                say(f"installing {name} into {target}: up to a minute, once")
                with cache.half_done(target) as unfinished:
                    install(LOCKS / f"{name}.lock", unfinished)
        return target

    return folder


def install(lock: Path, target: Path) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
    ]
    done = subprocess.run([*pip, "--target", str(target), "-r", str(lock)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def isolated(directory: Path, command: list[str]) -> list[str]:
    """The command with `directory` as its /tmp: the MetaService has a lock file there, so one a machine could run.

    What the command needs and lies below /tmp, a checkout perhaps, is seen there all the same.
    """
    namespaces = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    steps = []
    for needed in sorted({ROOT, Path(sys.prefix), Path(sys.base_prefix), cache.root()}):
        if needed.is_relative_to("/tmp"):
            place = directory / needed.relative_to("/tmp")
            place.mkdir(parents=True, exist_ok=True)
            steps.append(f"mount --rbind {shlex.quote(str(needed))} {shlex.quote(str(place))}")
    script = " && ".join([*steps, 'mount --rbind "$0" /tmp', 'exec "$@"'])
    return ["unshare", *namespaces, "sh", "-c", script, str(directory), *command]


@pytest.fixture(name="isolated")
def isolated_fixture() -> Callable[[Path, list[str]], list[str]]:
    return isolated


class Service:
    """A process with its output; `stop` ends it and gives its exit code."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        self.output = output
        with output.open("w") as stream:
            self.process = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def said(self) -> str:
        return self.output.read_text(errors="replace")


def ask(address: str, port: int, path: str) -> tuple[int, str]:
    """Status and body; the connection is kept alive, as Prometheus does."""
    connection = http.client.HTTPConnection(address, port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture(name="ask")
def ask_fixture() -> Callable[[str, int, str], tuple[int, str]]:
    return ask


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., Any]:
    """The first true answer; an answer that can't be had yet is none."""

    def eventually(look: Callable[[], Any], *, seconds: float = START_SECONDS, what: Callable[[], str] = str) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            try:
                if answer := look():
                    return answer
            except (OSError, http.client.HTTPException):
                pass
            assert time.monotonic() < deadline, f"not within {seconds} s: {what()}"
            time.sleep(0.05)

    return eventually


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder that a process with another /tmp sees too."""
    directory = Path(tempfile.mkdtemp(prefix="kvpp-pool-", dir=temporary_root()))
    yield directory
    shutil.rmtree(directory)


def free_ports(number: int, address: str = "127.0.0.1") -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind((address, 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(name="free_ports")
def free_ports_fixture() -> Callable[..., list[int]]:
    return free_ports


Started = Callable[..., Service]


@pytest.fixture(name="service")
def service_fixture(room: Path) -> Iterator[Started]:
    """Start a program with the given environment and no other."""
    running: list[Service] = []

    def start(command: list[str], **environment: str) -> Service:
        output = room / f"output-{len(running)}"
        running.append(Service(command, {"PATH": os.environ["PATH"], **environment}, output))
        return running[-1]

    yield start
    for one in running:
        one.stop(signal.SIGKILL)


@pytest.fixture
def meta_service(packages: Callable[[str], Path], room: Path) -> Iterator[Started]:
    """Start a real MetaService from a rendered ConfigMap, as its pod would."""
    running: list[Service] = []

    def start(
        config: Manifest, address: str, *, version: str = "1.3.0", name: str = "meta", **environment: str
    ) -> Service:
        folder = room / f"{name}-{len(running)}"
        (folder / "tmp").mkdir(parents=True)
        mounted = config_volume(folder / "mnt", config["data"])
        command = [sys.executable, str(mounted / "meta_service.py"), str(mounted / "mmc-meta.conf")]
        libraries = os.pathsep.join(str(packages(lock)) for lock in (f"memcache-{version}", "kubernetes"))
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": libraries, "PYTHONUNBUFFERED": "1"}
        service = Service(
            isolated(folder / "tmp", command), own | {"META_POD_IP": address} | environment, folder / "output"
        )
        running.append(service)
        return service

    yield start
    for service in running:
        service.stop(signal.SIGKILL)


def config_volume(folder: Path, data: dict[str, str]) -> Path:
    """A folder as the kubelet mounts a ConfigMap: every file is a link into a folder that is a link."""
    content = folder / "..2026_01_01"
    content.mkdir(parents=True)
    (folder / "..data").symlink_to(content.name)
    for name, text in data.items():
        (content / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


@pytest.fixture(name="config_volume")
def config_volume_fixture() -> Callable[[Path, dict[str, str]], Path]:
    return config_volume


@pytest.fixture
def health(ask: Callable[[str, int, str], tuple[int, str]]) -> Callable[[str, int], dict[str, Any]]:
    def health(address: str, port: int) -> dict[str, Any]:
        status, body = ask(address, port, "/health")
        assert status == 200
        found: dict[str, Any] = json.loads(body)
        return found

    return health


@pytest.fixture
def until_healthy(eventually: Callable[..., Any], health: Callable[[str, int], dict[str, Any]]) -> Callable[..., Any]:
    """Wait for a MetaService's first answer to `/health`, and give it."""

    def until_healthy(service: Service, port: int, address: str = "127.0.0.1") -> Any:
        def look() -> dict[str, Any]:
            assert service.process.poll() is None, service.said()
            return health(address, port)

        return eventually(look, what=service.said)

    return until_healthy


CLIENT = "from memcache_hybrid import DistributedObjectStore as Store; print('init', Store().init(0))"


@pytest.fixture
def client(packages: Callable[[str], Path], service: Started, tmp_path: Path) -> Callable[[str, str], Service]:
    """Start the client of a version on a file. Without a driver it ends behind the config store, or hangs there."""

    def client(version: str, text: str) -> Service:
        file = tmp_path / "mmc-local.conf"
        file.write_text(text)
        libraries = str(packages(f"memcache-{version}"))
        return service([sys.executable, "-c", CLIENT], MMC_LOCAL_CONFIG_PATH=str(file), PYTHONPATH=libraries)

    return client
