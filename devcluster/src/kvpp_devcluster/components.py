"""The flags of the control plane's programs.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kvpp_devcluster.pki import Authority

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# etcd takes a Unix socket only under a name of the form host:port, relative to its working folder.
ETCD_SOCKET, ETCD_PEER_SOCKET = "etcd.sock:0", "peer.sock:0"
SERVICE_RANGE = "10.96.0.0/12"  # a /24 is full after 254 Services
KUBERNETES_SERVICE = "10.96.0.1"  # the first address of the range


def etcd(directory: Path) -> list[str]:
    """Run one member on Unix sockets below `directory`, which must be the working folder."""
    client, peer = f"unix://{ETCD_SOCKET}", f"unix://{ETCD_PEER_SOCKET}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=error",
        "--unsafe-no-fsync",  # a test database may be lost with the machine
    ]


def apiserver(
    directory: Path, authority: Authority, *, address: str, port: int, with_controller_manager: bool
) -> list[str]:
    serving = authority.identity("apiserver")
    flags = [
        f"--etcd-servers=unix://{directory / ETCD_SOCKET}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--client-ca-file={authority.certificate}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--service-account-key-file={authority.token_public_key}",
        f"--service-account-signing-key-file={authority.token_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if address.startswith("127."):
        # The Service `kubernetes` may not point to a loopback address; pods that could use it need another.
        flags.append("--endpoint-reconciler-type=none")
    if not with_controller_manager:
        # Nobody makes a namespace's default ServiceAccount then, and without one no pod is admitted.
        flags.append("--disable-admission-plugins=ServiceAccount")
    return flags


def controller_manager(kubeconfig: Path, authority: Authority) -> list[str]:
    return [
        *_client(kubeconfig),
        "--use-service-account-credentials=true",  # RBAC knows the controllers one by one
        f"--service-account-private-key-file={authority.token_key}",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
    ]


def scheduler(kubeconfig: Path) -> list[str]:
    return _client(kubeconfig)


def _client(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",  # serves nothing
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]
