from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvpp_devcluster import kubeconfig
from kvpp_devcluster.controlplane import ApiError, ControlPlane
from kvpp_devcluster.processes import ProgramError, free_port, module_environment, spawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvpp_devcluster.cluster import LocalCluster

CLI = [sys.executable, "-m", "kvpp_devcluster"]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_dead(pids: list[int], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still alive: {alive}"
        time.sleep(0.02)


@pytest.mark.cluster
def test_versions_are_stamped(local_cluster: LocalCluster) -> None:
    versions = json.loads(local_cluster.kubectl("version", "--output=json"))
    server, client = versions["serverVersion"], versions["clientVersion"]
    assert server["gitVersion"].startswith("v1.")
    assert (server["gitVersion"], server["minor"]) == (client["gitVersion"], client["minor"])


@pytest.mark.cluster
def test_a_service_account_is_held_to_rbac(local_cluster: LocalCluster, namespace: str) -> None:
    path = local_cluster.control_plane.kubeconfig_for_service_account(namespace, "default")
    identity = local_cluster.kubectl("--kubeconfig", str(path), "auth", "whoami", "--output=json")
    assert json.loads(identity)["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"
    with pytest.raises(ProgramError, match="forbidden"):
        local_cluster.kubectl("--kubeconfig", str(path), "get", "secrets")


def sockets_of(pid: int) -> Iterator[str]:
    """Name a process's open sockets, such as socket:[12345]."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield str(descriptor.readlink())


@pytest.mark.cluster
def test_only_loopback_listens(local_cluster: LocalCluster) -> None:
    """Neither etcd nor controller-manager nor scheduler has a TCP port; the API server has one, on 127.0.0.1."""
    inodes = {inode for process in local_cluster.control_plane.processes for inode in sockets_of(process.pid)}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:  # TCP_LISTEN of <net/tcp_states.h>
                listening.append(fields[1])
    assert listening == [f"0100007F:{local_cluster.control_plane.port:04X}"]


@pytest.mark.cluster
def test_the_api_server_restarts_from_a_thread_that_ends(local_cluster: LocalCluster) -> None:
    """The kernel's death signal follows the forking thread: the new API server must not die with it."""
    thread = threading.Thread(target=local_cluster.control_plane.restart_apiserver)
    thread.start()
    thread.join()
    time.sleep(0.3)
    local_cluster.require_running()
    assert local_cluster.get("/version")["major"] == "1"


@pytest.mark.cluster
def test_a_taken_port_is_given_up(local_cluster: LocalCluster, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with ControlPlane(
            tmp_path, programs=local_cluster.programs, scheduler=False, controller_manager=False, port=taken
        ) as plane:
            assert plane.port != taken
            assert plane.request("GET", "/api/v1/namespaces/default")["kind"] == "Namespace"


@pytest.mark.cluster
def test_an_error_of_the_server_is_told(local_cluster: LocalCluster) -> None:
    with pytest.raises(ApiError, match=r"404: .*namespaces \\\"nowhere\\\" not found"):
        local_cluster.get("/api/v1/namespaces/nowhere")


@pytest.mark.cluster
def test_a_program_that_dies_at_once_is_told_with_its_last_words(local_cluster: LocalCluster, tmp_path: Path) -> None:
    plane = ControlPlane(
        tmp_path,
        programs=local_cluster.programs,
        scheduler=False,
        controller_manager=False,
        apiserver_flags=["--nonsense"],
    )
    with pytest.raises(ProgramError, match="unknown flag: --nonsense"):
        plane.start()
    assert plane.processes == ()


@pytest.mark.cluster
def test_a_killed_parent_takes_everything_along(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time; from kvpp_devcluster.cluster import LocalCluster\n"
        "cluster = LocalCluster(groups=(), directory=pathlib.Path(sys.argv[1])); cluster.start()\n"
        "print(*(process.pid for process in cluster.processes), flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cluster")]
    with subprocess.Popen(command, env=module_environment(), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert [is_alive(pid) for pid in pids] == [True] * 5
        parent.kill()
    wait_until_dead(pids)


@pytest.mark.cluster
def test_a_background_cluster_comes_and_goes(tmp_path: Path) -> None:
    name = f"test-{os.getpid()}"
    group = "name=n,count=2,resource=huawei.com/npu:8"
    environment = {**module_environment(), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    own = ["--name", name]

    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*CLI, *arguments, *own], env=environment, capture_output=True, text=True, check=False)

    assert cli("status").returncode == 1
    try:
        up = cli("up", "--group", group)
        assert up.returncode == 0, up.stderr
        script = f"{up.stdout}\nkubectl get nodes --output=name"
        nodes = subprocess.check_output(["bash", "-c", script], env=environment, text=True)
        assert nodes == "node/n-0\nnode/n-1\n"
        assert "is up already" in cli("up").stderr
        assert "n-1    Ready" in cli("status").stdout
        directory = kubeconfig_directory(up.stdout)
    finally:
        down = cli("down")
    assert down.returncode == 0, down.stderr
    assert not directory.exists()
    assert cli("down").stderr == f"cluster {name} is not up\n"
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.check_output(["pgrep", "--full", str(directory)])


def kubeconfig_directory(exports: str) -> Path:
    line = next(line for line in exports.splitlines() if line.startswith("export KUBECONFIG="))
    return Path(line.partition("=")[2]).parent


@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_foreground_cluster(number: signal.Signals) -> None:
    command = [*CLI, "up", "--foreground", "--name", f"test-{os.getpid()}-{number}", "--group", "name=n"]
    with subprocess.Popen(command, env=module_environment(), stderr=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stderr
        try:
            directory = kubeconfig_directory(next(line for line in supervisor.stderr if line.startswith("export")))
            supervisor.send_signal(number)
            supervisor.wait(20)
        finally:
            supervisor.kill()  # else leaving the block waits for ever
    assert not directory.exists()
    assert not directory.parent.exists()


def test_processes_have_their_output_in_the_log(tmp_path: Path) -> None:
    process = spawn("shell", ["sh", "-c", "echo words; exit 3"], log=tmp_path / "log")
    process.popen.wait()
    with pytest.raises(ProgramError, match=r"shell ended with status 3.*\nwords"):
        process.require_running()
    process.stop()


def test_a_stubborn_process_is_killed(tmp_path: Path) -> None:
    process = spawn(
        "shell", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], log=tmp_path / "log"
    )
    deadline = time.monotonic() + 10
    while "ready" not in process.last_words() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.stop(grace_seconds=0.2)
    assert not process.is_running


def test_free_ports_lie_below_those_of_engines_and_connections() -> None:
    assert free_port() in range(10240, 20000)


def test_a_kubeconfig_with_inline_certificates_is_read(tmp_path: Path) -> None:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://h:1", "certificate-authority-data": "Y2VydA=="}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    access = kubeconfig.read(path)
    assert access.ca
    assert access.ca.read_text() == "cert"
    assert (access.server, access.token, access.client_certificate) == ("https://h:1", "t", None)
    access.ca.unlink()
