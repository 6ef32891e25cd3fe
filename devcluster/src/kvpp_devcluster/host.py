"""One host: a network namespace with containerd, kubelet and kube-proxy in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kvpp_devcluster import hostfiles, machine
from kvpp_devcluster.hostfiles import GATEWAY, PREFIX_LENGTH, HostPlan
from kvpp_devcluster.processes import Process, ProgramError, run, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BRIDGE = "hosts"
CONTAINERD_SECONDS = 30.0
# A host that passes a Service's packets on to another host would tell the sender to go there directly, past its own
# address translation.
SETTINGS = ("net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.eth0.send_redirects=0")


def connect(hosts: Sequence[HostPlan], *, services: str) -> None:
    """Cables: a bridge where the control plane is, one veth to each host, routes to each other's pods."""
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{GATEWAY}/{PREFIX_LENGTH}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    for host in hosts:
        _ip("netns", "add", host.name)
        _ip("link", "add", "eth0", "netns", host.name, "type", "veth", "peer", "name", host.name)
        _ip("link", "set", host.name, "master", BRIDGE, "up")
        inside = ("-n", host.name)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "address", "add", f"{host.address}/{PREFIX_LENGTH}", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")
        # Nothing leaves this network, but without a route no address of a Service is even tried.
        _ip(*inside, "route", "add", "default", "via", GATEWAY)
        run(["nsenter", f"--net={host.network_namespace}", "sysctl", "-qw", *SETTINGS])
        for other in hosts:
            if other is not host:
                _ip(*inside, "route", "add", other.pods, "via", other.address)
        _ip("route", "add", host.pods, "via", host.address)
    # Services exist on hosts only; the first host's kube-proxy answers for whoever runs beside the control plane.
    _ip("route", "add", services, "via", hosts[0].address)


def _ip(*words: str) -> None:
    run(["ip", *words])


class Host:
    """`start_runtime`, `load` images, then `start_kubelet`."""

    def __init__(self, plan: HostPlan, *, programs: Mapping[str, Path], logs: Path) -> None:
        self.plan = plan
        self._programs = programs
        self._logs = logs
        self.processes: tuple[Process, ...] = ()

    def start_runtime(self) -> None:
        """Return when containerd answers."""
        plugins = machine.plugins()
        if plugins is None:
            raise ProgramError("no network plugins: see machine.prepare")
        plan = self.plan
        plan.network_folder.mkdir(parents=True)
        network = hostfiles.written(hostfiles.pod_network(plan))
        (plan.network_folder / "10-pods.conflist").write_text(network)
        configuration = plan.directory / "containerd.toml"
        configuration.write_text(hostfiles.containerd(plan, plugins))
        runtime = self._spawn("containerd", "containerd", "--config", configuration)
        deadline = time.monotonic() + CONTAINERD_SECONDS
        while time.monotonic() < deadline:
            runtime.require_running()
            try:
                self.ctr("version")
            except ProgramError:
                time.sleep(0.1)
            else:
                return
        raise ProgramError(f"containerd of {plan.name} did not answer: {runtime.last_words()}")

    def ctr(self, *words: str | Path) -> str:
        """Talk to containerd where the kubelet keeps its things."""
        return run(["ctr", "--address", self.plan.socket, "--namespace", "k8s.io", *words])

    def load(self, archive: Path) -> None:
        self.ctr("images", "import", archive)

    def enter(self, *command: str | Path) -> str:
        """Run a command on the host and return its output."""
        return run(["nsenter", f"--net={self.plan.network_namespace}", *command])

    def start_kubelet(self, kubeconfigs: Mapping[str, Path], resolver: Path) -> None:
        configuration = self.plan.directory / "kubelet.yaml"
        configuration.write_text(hostfiles.written(hostfiles.kubelet(self.plan, resolver)))
        node, proxy = kubeconfigs["kubelet"], kubeconfigs["kube-proxy"]
        flags = hostfiles.kubelet_flags(self.plan, configuration=configuration, kubeconfig=node)
        self._spawn("kubelet", self._programs["kubelet"], *flags)
        self._spawn("kube-proxy", self._programs["kube-proxy"], *hostfiles.proxy_flags(self.plan, kubeconfig=proxy))

    def stop(self) -> None:
        """End kubelet and kube-proxy before containerd; containers end with the enclosing process namespace."""
        for process in reversed(self.processes):
            process.stop(grace_seconds=2)
        self.processes = ()

    def _spawn(self, name: str, *command: str | Path) -> Process:
        enter = ("nsenter", f"--net={self.plan.network_namespace}")
        process = spawn(name, [*enter, *command], log=self._logs / f"{self.plan.name}-{name}.log")
        self.processes += (process,)
        return process
