"""The real LeaderWorkerSet controller as a plain process, with its own manifests, RBAC and webhooks.

Its Deployment and Service are left out: the webhooks are reached by URL on loopback with a certificate of the
cluster's authority, so nothing has to run in a pod.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import yaml

from kvpp_devcluster.processes import Process, ProgramError, free_port, run, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kvpp_devcluster.controlplane import ControlPlane

PROGRAMS = ("lws", "lws-manifests", "kubectl")
NAMESPACE, SERVICE_ACCOUNT = "lws-system", "lws-controller-manager"
NOT_NEEDED = ("Deployment", "Service", "Secret")  # what would run the controller in the cluster
START_SECONDS = 90.0
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/leaderworkersets.leaderworkerset.x-k8s.io"


class LeaderWorkerSetController:
    """Installs LeaderWorkerSet into a running control plane and runs its controller until `stop`."""

    def __init__(self, control_plane: ControlPlane, *, programs: Mapping[str, Path]) -> None:
        self._control_plane = control_plane
        self._programs = programs
        self._directory = control_plane.directory / "lws"
        self._process: Process | None = None

    @property
    def processes(self) -> tuple[Process, ...]:
        return (self._process,) if self._process else ()

    def start(self) -> None:
        """Return when the webhooks answer: the next LeaderWorkerSet is taken."""
        plane = self._control_plane
        self._directory.mkdir(mode=0o700)
        port, health_port = free_port(plane.address), free_port(plane.address)
        documents = self._manifests()
        hooks = [document for document in documents if document["kind"].endswith("WebhookConfiguration")]
        # Webhooks first: an object or a pod made before they are registered would lack what they add, and never get it. As in
        # an installation they refuse while nobody answers.
        self._apply([self._by_url(hook, port) for hook in hooks])
        self._apply([document for document in documents if document not in hooks])
        self._wait_for_crd()
        kubeconfig = plane.kubeconfig_for_service_account(NAMESPACE, SERVICE_ACCOUNT)
        configuration = self._directory / "configuration.yaml"
        configuration.write_text(json.dumps(self._configuration(port, health_port)))
        self._process = spawn(
            "lws",
            [self._programs["lws"], f"--config={configuration}"],
            log=plane.logs / "lws.log",
            env={"KUBECONFIG": str(kubeconfig)},
        )
        try:
            self._wait_for_webhooks(port)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process:
            self._process.stop(grace_seconds=0)
            self._process = None

    def _manifests(self) -> list[dict[str, Any]]:
        text = run([self._programs["kubectl"], "kustomize", self._programs["lws-manifests"] / "default"])
        return [document for document in yaml.safe_load_all(text) if document["kind"] not in NOT_NEEDED]

    def _apply(self, documents: list[dict[str, Any]]) -> None:
        kubectl: list[str | Path] = [self._programs["kubectl"], "--kubeconfig", self._control_plane.kubeconfig]
        run([*kubectl, "apply", "--server-side", "--filename=-"], stdin=yaml.safe_dump_all(documents))

    def _wait_for_crd(self) -> None:
        """Wait until the API is served: before that the controller ends at once."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            crd = self._control_plane.request("GET", CRD_PATH)
            conditions = crd.get("status", {}).get("conditions") or []  # null at first
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                return
            time.sleep(0.05)
        raise ProgramError("the LeaderWorkerSet CRD was not established")

    def _configuration(self, port: int, health_port: int) -> dict[str, Any]:
        address = self._control_plane.address
        identity = self._control_plane.authority.issue(
            "lws-webhook", "/CN=lws-webhook", alternative_names=(f"IP:{address}",)
        )
        (self._directory / "tls.crt").symlink_to(identity.certificate)
        (self._directory / "tls.key").symlink_to(identity.key)
        return {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": address, "port": port, "certDir": str(self._directory)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{address}:{health_port}"},
        }

    def _by_url(self, configuration: dict[str, Any], port: int) -> dict[str, Any]:
        authority = base64.b64encode(self._control_plane.ca.read_bytes()).decode()
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            url = f"https://{self._control_plane.address}:{port}{path}"
            hook["clientConfig"] = {"url": url, "caBundle": authority}
        return configuration

    def _wait_for_webhooks(self, port: int) -> None:
        """Wait for the path that the controller registers last."""
        context = ssl.create_default_context(cafile=self._control_plane.ca)
        url = f"https://{self._control_plane.address}:{port}/validate--v1-pod"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for process in self.processes:
                process.require_running()
            try:
                with urllib.request.urlopen(url, context=context, timeout=5):
                    return
            except OSError:
                time.sleep(0.05)
        raise ProgramError(f"the LeaderWorkerSet webhooks did not answer after {START_SECONDS:.0f} s")
