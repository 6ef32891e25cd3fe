"""A real Kubernetes control plane as plain processes: no root, no containers, no kubelet.

etcd listens on a Unix socket in the cluster's own folder, controller-manager and scheduler serve nothing, so the API
server's port is the only one.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from kvpp_devcluster import components, kubeconfig
from kvpp_devcluster.components import ETCD_SOCKET
from kvpp_devcluster.pki import Authority, Identity
from kvpp_devcluster.processes import Process, ProgramError, free_port, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SOCKET_PATH_LIMIT = 107  # sun_path of unix(7): 108 bytes with the closing zero
START_SECONDS = 90.0
PORT_ATTEMPTS = 5
PORT_TAKEN = "address already in use"
TOKEN_SECONDS = 7 * 24 * 3600


class ApiError(RuntimeError):
    """The API server's answer was an error; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ControlPlane:
    """etcd, kube-apiserver, and as wished kube-controller-manager and kube-scheduler, in one folder.

    `directory` gets certificates, database, kubeconfig files and `logs/`; a tmpfs makes it fast.  `address` is where
    the API server listens: loopback, or an address of a network namespace that the caller runs in; `port` is only
    the first one tried.
    """

    def __init__(
        self,
        directory: Path,
        *,
        programs: Mapping[str, Path],
        scheduler: bool = True,
        controller_manager: bool = True,
        address: str = "127.0.0.1",
        port: int | None = None,
        apiserver_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.address = address
        self.port = port or free_port(address)
        self._programs = programs
        self._wants_scheduler = scheduler
        self._wants_controller_manager = controller_manager
        self._apiserver_flags = tuple(apiserver_flags)
        self._controller_manager_flags = tuple(controller_manager_flags)
        self._processes: dict[str, Process] = {}
        self.authority = Authority(directory / "pki")

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def ca(self) -> Path:
        return self.authority.certificate

    @property
    def admin(self) -> Identity:
        """Client certificate of group system:masters, which RBAC never refuses."""
        return self.authority.identity("admin")

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def processes(self) -> tuple[Process, ...]:
        return tuple(self._processes.values())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when the API server is ready; raises ProgramError with the log's end when a program dies."""
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(str(self.directory / ETCD_SOCKET)) > SOCKET_PATH_LIMIT:
            raise ProgramError(f"{self.directory} is too long a path for a Unix socket")
        try:
            self._make_identities()
            self._spawn("etcd", *components.etcd(self.directory), cwd=self.directory)
            self._start_apiserver(may_move=True)
            _, manager, scheduler = map(self._write_kubeconfig, ("admin", "controller-manager", "scheduler"))
            if self._wants_controller_manager:
                flags = components.controller_manager(manager, self.authority)
                self._spawn("kube-controller-manager", *flags, *self._controller_manager_flags)
            if self._wants_scheduler:
                self._spawn("kube-scheduler", *components.scheduler(scheduler))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process, the API server before its etcd.  The database is not worth a graceful end."""
        for process in reversed(self.processes):
            process.stop(grace_seconds=0)
        self._processes.clear()

    def restart_apiserver(self, *, down_seconds: float = 0.0) -> None:
        """Kill kube-apiserver, wait, and start it again on the same port; etcd and the others keep running."""
        self._processes["kube-apiserver"].stop(grace_seconds=0)
        time.sleep(down_seconds)
        self._start_apiserver(may_move=False)

    def require_running(self) -> None:
        """Raise ProgramError when one of the programs has ended."""
        for process in self.processes:
            process.require_running()

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig that is the service account, by a fresh token of the TokenRequest API."""
        wish = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        got = self.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", wish)
        access = kubeconfig.Access(self.server, self.ca, token=got["status"]["token"])
        return kubeconfig.write(self.directory / f"{namespace}.{name}.kubeconfig", access, namespace=namespace)

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """Send one request as admin and return the decoded answer; raises ApiError, or OSError without an answer."""
        context = kubeconfig.with_certificate(self.server, self.ca, self.admin).ssl_context()
        request = urllib.request.Request(  # noqa: S310  (the URL is ours)
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, error.read().decode(errors="replace")) from None

    def _write_kubeconfig(self, user: str) -> Path:
        access = kubeconfig.with_certificate(self.server, self.ca, self.authority.identity(user))
        return kubeconfig.write(self.directory / f"{user}.kubeconfig", access)

    def _make_identities(self) -> None:
        self.authority.create()
        names = {"127.0.0.1", self.address, components.KUBERNETES_SERVICE}
        addresses = [f"IP:{name}" for name in sorted(names)]
        self.authority.issue(
            "apiserver",
            "/CN=kube-apiserver",
            alternative_names=(*addresses, "DNS:localhost", "DNS:kubernetes.default.svc"),
        )
        self.authority.issue("admin", "/O=system:masters/CN=admin")
        self.authority.issue("controller-manager", "/CN=system:kube-controller-manager")
        self.authority.issue("scheduler", "/CN=system:kube-scheduler")

    def _start_apiserver(self, *, may_move: bool) -> None:
        """Start kube-apiserver and wait for /readyz; a taken port is given up for another, or waited for."""
        for _ in range(PORT_ATTEMPTS):
            flags = components.apiserver(
                self.directory,
                self.authority,
                address=self.address,
                port=self.port,
                with_controller_manager=self._wants_controller_manager,
            )
            process = self._spawn("kube-apiserver", *flags, *self._apiserver_flags)
            try:
                self._wait_ready()
            except ProgramError:
                if process.is_running or PORT_TAKEN not in process.last_words(40):
                    raise
                if may_move:
                    self.port = free_port(self.address)
                else:
                    time.sleep(1)
            else:
                return
        raise ProgramError(f"kube-apiserver found no free port on {self.address}, the last one was {self.port}")

    def _wait_ready(self) -> None:
        context = kubeconfig.with_certificate(self.server, self.ca, self.admin).ssl_context()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.require_running()
            try:
                with urllib.request.urlopen(f"{self.server}/readyz", context=context, timeout=5):  # noqa: S310
                    return
            except OSError:  # refused, or "not ready yet": HTTPError is an OSError
                time.sleep(0.05)
        raise ProgramError(f"kube-apiserver was not ready after {START_SECONDS:.0f} s, see {self.logs}")

    def _spawn(self, name: str, *flags: str, cwd: Path | None = None) -> Process:
        command: list[str | Path] = [self._programs[name], *flags]
        self._processes[name] = spawn(name, command, log=self.logs / f"{name}.log", cwd=cwd)
        return self._processes[name]
