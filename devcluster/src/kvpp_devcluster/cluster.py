"""The local cluster as one thing: control plane, simulated nodes and, as wished, the LeaderWorkerSet controller."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kvpp_devcluster import components, lws, nodes, nodestatus, programs
from kvpp_devcluster.controlplane import ControlPlane
from kvpp_devcluster.lws import LeaderWorkerSetController
from kvpp_devcluster.nodes import NodeGroup
from kvpp_devcluster.processes import Process, ProgramError, module_environment, run, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NODES_SECONDS = 90.0
# Enough for every sample of the project: 950 nodes offer `huawei.com/npu`, A3 nodes `huawei.com/Ascend910`.  Labels as
# MindCluster's device plugin sets them.
DEFAULT_GROUPS = (
    NodeGroup("npu-950", 6, {"huawei.com/npu": "8"}, {"node.kubernetes.io/npu.chip.name": "Ascend950DT"}),
    NodeGroup("npu-a3", 2, {"huawei.com/Ascend910": "16"}, {"node.kubernetes.io/npu.chip.name": "Ascend910_9391"}),
)
# A lost node is found out after 20 s instead of 50, which still forgives a busy machine four heartbeats.
LOST_NODE_FLAGS = ("--node-monitor-period=1s", "--node-monitor-grace-period=20s")


def temporary_root() -> Path:
    """Return where clusters live: a tmpfs if the machine has one, so that etcd never waits for a disk."""
    shared_memory = Path("/dev/shm")  # noqa: S108  (folders below it are made with mode 0700)
    return shared_memory if os.access(shared_memory, os.W_OK) else Path(tempfile.gettempdir())


def _new_directory() -> Path:
    """Make a folder that names its process, and remove those whose process was killed before it could."""
    root, prefix = temporary_root(), "kvpp-devcluster-pid"
    for path in root.glob(f"{prefix}*-*"):
        pid = path.name.removeprefix(prefix).split("-")[0]
        is_ours = path.stat().st_uid == os.getuid() and not path.is_symlink()
        if is_ours and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=root))


class LocalCluster:
    """A cluster of its own for a test session or a script.  To be used as `with LocalCluster() as cluster`.

    `directory` is made if need be and removed in the end (default: a new one on a tmpfs); `say` gets the progress lines
    of a first build.
    Raises ProgramError when a program cannot be had or dies.
    """

    def __init__(
        self,
        *,
        groups: Sequence[NodeGroup] = DEFAULT_GROUPS,
        with_lws: bool = False,
        directory: Path | None = None,
        address: str = "127.0.0.1",
        apiserver_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = LOST_NODE_FLAGS,
        say: Callable[[str], None] = print,
    ) -> None:
        self._given_directory = directory
        self._groups = groups
        self._with_lws = with_lws
        self._say = say
        self.programs: dict[str, Path] = {}
        self._address = address
        self._apiserver_flags = apiserver_flags
        self._controller_manager_flags = controller_manager_flags
        self._nodes: Process | None = None
        self._lws: LeaderWorkerSetController | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def directory(self) -> Path:
        return self.control_plane.directory

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.control_plane.kubeconfig

    @property
    def processes(self) -> tuple[Process, ...]:
        own = (self._nodes,) if self._nodes else ()
        return (*self.control_plane.processes, *own, *(self._lws.processes if self._lws else ()))

    def start(self) -> None:
        """Return when the API server is ready, all nodes are Ready and, as wished, LeaderWorkerSets are taken."""
        wanted = [*components.PROGRAMS, "kubectl", *(lws.PROGRAMS if self._with_lws else ())]
        self.programs = programs.ensure(dict.fromkeys(wanted), say=self._say)
        self.control_plane = ControlPlane(
            self._given_directory or _new_directory(),
            programs=self.programs,
            address=self._address,
            apiserver_flags=self._apiserver_flags,
            controller_manager_flags=self._controller_manager_flags,
        )
        try:
            self.control_plane.start()
            self._start_nodes()
            if self._with_lws:
                self.start_lws()
            self._wait_for_nodes()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes and remove the folder."""
        if self._lws:
            self._lws.stop()
        if self._nodes:
            self._nodes.stop(grace_seconds=0)
        self.control_plane.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def require_running(self) -> None:
        """Raise ProgramError when one of the programs has ended."""
        for process in self.processes:
            process.require_running()

    def start_lws(self) -> None:
        """Install LeaderWorkerSet now; does nothing when it is there."""
        if self._lws is None:
            self.programs |= programs.ensure(lws.PROGRAMS, say=self._say)
            self._lws = LeaderWorkerSetController(self.control_plane, programs=self.programs)
            self._lws.start()

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002  (as subprocess.run calls it)
        """Run kubectl as administrator and return its output; ProgramError carries its error output."""
        return run([self.programs["kubectl"], *arguments], env=self.environment(), stdin=input)

    def helm(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Run Helm 4 as administrator; the first call may build it."""
        self.programs |= programs.ensure(["helm"], say=self._say)
        return run([self.programs["helm"], *arguments], env=self.environment(), stdin=input)

    def environment(self) -> dict[str, str]:
        """Return the variables by which kubectl, Helm and other programs find this cluster and no user's settings."""
        home = self.directory / "helm"
        places = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.directory / "kubectl-cache"), **places}

    def get(self, path: str) -> Any:
        """Read one API path as administrator."""
        return self.control_plane.request("GET", path)

    def add_node(self, name: str, *, resources: Mapping[str, str], labels: Mapping[str, str] | None = None) -> None:
        """Add one simulated node, Ready within a second."""
        manifest = nodes.node_manifest(name, resources=resources, labels=labels or {})
        self.control_plane.request("POST", "/api/v1/nodes", manifest)

    def lose_node(self, name: str) -> None:
        """Let a node fall silent; the control plane taints it after its grace period."""
        self.kubectl("annotate", "node", name, f"{nodes.LOST}=true", "--overwrite")

    def bring_back_node(self, name: str) -> None:
        self.kubectl("annotate", "node", name, f"{nodes.LOST}-")

    def delete_node(self, name: str) -> None:
        self.kubectl("delete", "node", name)

    def _start_nodes(self) -> None:
        groups = [argument for group in self._groups for argument in ("--group", nodes.format_group(group))]
        self._nodes = spawn(
            "simulated nodes",
            [sys.executable, "-m", "kvpp_devcluster", "nodes", "--kubeconfig", str(self.kubeconfig), *groups],
            log=self.control_plane.logs / "nodes.log",
            env=module_environment(),
        )

    def _wait_for_nodes(self) -> None:
        wanted = sum(group.count for group in self._groups)
        deadline = time.monotonic() + NODES_SECONDS
        while time.monotonic() < deadline:
            self.require_running()
            items = self.get("/api/v1/nodes")["items"]
            if sum(_is_ready(node) for node in items) >= wanted:
                return
            time.sleep(0.05)
        raise ProgramError(f"the simulated nodes were not Ready after {NODES_SECONDS:.0f} s, see {self.directory}")


def _is_ready(node: dict[str, Any]) -> bool:
    return nodestatus.is_ready(node) and not node["spec"].get("taints")
