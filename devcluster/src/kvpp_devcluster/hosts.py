"""A cluster of real hosts on one machine: kubelets that run containers, a pod network, Services, DNS.

Only inside `isolation.run`, which ends all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvpp_devcluster import cache, components, hostfiles, kubeconfig, nodestatus, pause, programs
from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.first_process import HOME
from kvpp_devcluster.host import Host, connect
from kvpp_devcluster.hostfiles import GATEWAY, HostPlan
from kvpp_devcluster.isolation import CONTROL_GROUP
from kvpp_devcluster.processes import Process, ProgramError, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PROGRAMS = ("kubelet", "kube-proxy", "coredns", "pause")
NODES_SECONDS = 60.0
RESOURCES = {"huawei.com/npu": "8"}
LABELS = {"node.kubernetes.io/npu.chip.name": "Ascend950DT"}
APISERVER_FLAGS = (
    "--enable-aggregator-routing=true",
    "--kubelet-preferred-address-types=InternalIP",  # for logs and exec
)
# What the Node authorizer would allow, for all nodes alike.
NODE_RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kvpp-hosts"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
}


class HostCluster(LocalCluster):
    """`logs`: a folder that outlives the cluster.  `resources`: what a device plugin would offer on each host."""

    def __init__(
        self,
        *,
        count: int = 4,
        resources: Mapping[str, str] = RESOURCES,
        labels: Mapping[str, str] = LABELS,
        with_lws: bool = False,
        logs: Path,
        say: Callable[[str], None] = print,
    ) -> None:
        if CONTROL_GROUP not in os.environ:
            raise ProgramError("real hosts run inside kvpp_devcluster.isolation only")
        super().__init__(
            groups=(),
            with_lws=with_lws,
            directory=HOME / "plane",
            address=GATEWAY,
            apiserver_flags=APISERVER_FLAGS,
            say=say,
        )
        self._plans = [HostPlan(number, HOME / f"host-{number}") for number in range(1, count + 1)]
        self._resources, self._labels = dict(resources), dict(labels)
        self._logs = logs
        self._dns: Process | None = None
        self.hosts: list[Host] = []

    @property
    def processes(self) -> tuple[Process, ...]:
        own = (self._dns,) if self._dns else ()
        return (*super().processes, *own, *(process for host in self.hosts for process in host.processes))

    def start(self) -> None:
        shutil.rmtree(self._logs, ignore_errors=True)
        self._logs.mkdir(parents=True)
        (HOME / "plane").mkdir(parents=True)
        (HOME / "plane" / "logs").symlink_to(self._logs)
        connect(self._plans, services=components.SERVICE_RANGE)
        super().start()

    def stop(self) -> None:
        for host in self.hosts:
            host.stop()
        if self._dns:
            self._dns.stop()
        super().stop()

    def load(self, archives: Iterable[Path]) -> None:
        """Put images on every host."""
        wanted = list(archives)

        def load(host: Host) -> None:
            for archive in wanted:
                host.load(archive)

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(load, self.hosts))

    def _start_nodes(self) -> None:
        self.programs |= programs.ensure(PROGRAMS, say=self._say)
        resolver = self._start_dns()
        self.kubectl("apply", "--filename=-", input=json.dumps(NODE_RIGHTS))
        image = pause.write_image(self.programs["pause"], HOME / "pause.tar", name=hostfiles.SANDBOX_IMAGE)
        self.hosts = [Host(plan, programs=self.programs, logs=self._logs) for plan in self._plans]
        kubeconfigs = [self._kubeconfigs(plan) for plan in self._plans]

        def begin(host: Host, files: Mapping[str, Path]) -> None:
            host.start_runtime()
            host.load(image)
            host.start_kubelet(files, resolver)

        with ThreadPoolExecutor() as pool:
            list(pool.map(begin, self.hosts, kubeconfigs))

    def _start_dns(self) -> Path:
        """CoreDNS beside the control plane; who runs there, such as a test, resolves names of the cluster, too."""
        corefile, resolver = HOME / "Corefile", HOME / "resolv.conf"
        corefile.write_text(hostfiles.corefile(self.kubeconfig))
        resolver.write_text(hostfiles.RESOLVER)
        own = Path("/etc/resolv.conf")
        own.unlink(missing_ok=True)
        own.write_text(hostfiles.RESOLVER)
        command: Sequence[str | Path] = [self.programs["coredns"], "-conf", corefile]
        self._dns = spawn("coredns", command, log=self._logs / "coredns.log")
        return resolver

    def _kubeconfigs(self, plan: HostPlan) -> dict[str, Path]:
        plane = self.control_plane
        subjects = {
            "kubelet": f"/O=system:nodes/CN=system:node:{plan.name}",
            "kube-proxy": "/CN=system:kube-proxy",
        }
        files = {}
        for program, subject in subjects.items():
            identity = plane.authority.issue(f"{plan.name}-{program}", subject)
            access = kubeconfig.with_certificate(plane.server, plane.ca, identity)
            files[program] = kubeconfig.write(plane.directory / f"{plan.name}-{program}.kubeconfig", access)
        return files

    def _wait_for_nodes(self) -> None:
        """Wait until every host is Ready, and play the device plugin: the kubelet keeps a capacity that it does not know."""
        offered = json.dumps({"status": {"capacity": self._resources}})
        wanted = {plan.name for plan in self._plans}
        self._wait("Ready", lambda nodes: {name for name, node in nodes.items() if nodestatus.is_ready(node)} >= wanted)
        for plan in self._plans:
            self.kubectl("patch", "node", plan.name, "--subresource=status", "--type=merge", f"--patch={offered}")
            self.kubectl("label", "node", plan.name, *(f"{key}={value}" for key, value in self._labels.items()))
        self._wait("offering their devices", lambda nodes: all(self._offers(node) for node in nodes.values()))

    def _offers(self, node: dict[str, Any]) -> bool:
        allocatable: dict[str, str] = node["status"].get("allocatable", {})
        return self._resources.items() <= allocatable.items()

    def _wait(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + NODES_SECONDS
        while time.monotonic() < deadline:
            self.require_running()
            if holds({node["metadata"]["name"]: node for node in self.get("/api/v1/nodes")["items"]}):
                return
            time.sleep(0.2)
        raise ProgramError(f"the hosts were not {what} after {NODES_SECONDS:.0f} s, see {self._logs}")


def main() -> int:
    """Run a command in a cluster; called inside, by `python -m kvpp_devcluster hosts`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--lws", action="store_true")
    parser.add_argument("--image", action="append", default=[], type=Path)
    parser.add_argument("command", nargs="+")
    told = parser.parse_args()
    with HostCluster(count=told.count, with_lws=told.lws, logs=cache.root() / "hosts" / "logs") as cluster:
        cluster.load(told.image)
        path = f"{cluster.programs['kubectl'].parent}:{os.environ['PATH']}"
        return subprocess.run(
            told.command, env={**os.environ, **cluster.environment(), "PATH": path}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
