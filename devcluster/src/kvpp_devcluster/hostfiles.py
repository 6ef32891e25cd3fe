"""What the programs of a host are told: configuration files and flags.  Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SANDBOX_IMAGE = "localhost/kvpp-pause:1"
HOST_NETWORK = "10.200.0"
PREFIX_LENGTH = 24
GATEWAY = f"{HOST_NETWORK}.1"
"""The control plane's address, and CoreDNS's."""
POD_NETWORK = "10.244.0.0/16"
DOMAIN = "cluster.local"


@dataclass(frozen=True)
class HostPlan:
    """One host: its number decides its addresses, its name its place."""

    number: int
    directory: Path

    @property
    def name(self) -> str:
        return f"host-{self.number}"

    @property
    def address(self) -> str:
        return f"{HOST_NETWORK}.{10 + self.number}"

    @property
    def pods(self) -> str:
        """Addresses of its pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def network_namespace(self) -> Path:
        return Path("/run/netns") / self.name

    @property
    def socket(self) -> Path:
        return self.directory / "containerd.sock"

    @property
    def network_folder(self) -> Path:
        """Where containerd looks for the pod network."""
        return self.directory / "cni"


def containerd(host: HostPlan, plugins: Path) -> str:
    return f"""version = 2
root = "{host.directory}/containerd"
state = "{host.directory}/state"
[grpc]
  address = "{host.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{SANDBOX_IMAGE}"
  # Without CAP_SYS_RESOURCE runc may not lower it: "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{host.network_folder}"
"""


def pod_network(host: HostPlan) -> dict[str, Any]:
    """Point to point, not a bridge: what pods of one host say to each other is routed, so kube-proxy sees it."""
    addresses = {
        "type": "host-local",
        "dataDir": str(host.directory / "addresses"),
        "ranges": [[{"subnet": host.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet(host: HostPlan, resolver: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": host.address,
        "healthzPort": 0,
        "containerRuntimeEndpoint": f"unix://{host.socket}",
        "podLogsDir": str(host.directory / "pod-logs"),
        "clusterDNS": [GATEWAY],
        "clusterDomain": DOMAIN,
        "resolvConf": str(resolver),
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},  # the network ends with the last process
        # Several kubelets share one kernel: none of them owns the root of the control groups.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        # They share memory and disk, too, with whatever else runs on the machine.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
    }


def kubelet_flags(host: HostPlan, *, configuration: Path, kubeconfig: Path) -> list[str]:
    return [
        f"--config={configuration}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={host.name}",
        f"--node-ip={host.address}",
        f"--root-dir={host.directory / 'kubelet'}",
    ]


def proxy_flags(host: HostPlan, *, kubeconfig: Path) -> list[str]:
    # Settings of connection tracking are the whole kernel's: zero leaves them alone.
    untouched = {"max-per-core": "0", "min": "0", "tcp-timeout-established": "0s", "tcp-timeout-close-wait": "0s"}
    return [
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={host.name}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={POD_NETWORK}",
        "--healthz-bind-address=",
        *(f"--conntrack-{name}={value}" for name, value in untouched.items()),
    ]


def corefile(kubeconfig: Path) -> str:
    """Names of the cluster only; pods have no way out."""
    return f""".:53 {{
  bind {GATEWAY}
  errors
  cache 2
  kubernetes {DOMAIN} {{
    kubeconfig {kubeconfig}
    ttl 1
  }}
}}
"""


RESOLVER = f"nameserver {GATEWAY}\nsearch default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\noptions ndots:5\n"


def written(value: dict[str, Any]) -> str:
    """JSON is YAML, too."""
    return json.dumps(value, indent=1)
