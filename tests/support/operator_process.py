"""The real operator as a process, and a namespace as its user sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import specs
import yaml

from kvpp_devcluster.cluster import LocalCluster

SECONDS = 90.0
"""The machine may be busy with much else; what is awaited usually takes a second or two."""
T = TypeVar("T")
PATHS = {"kvppdeployments": "apis/serving.kvpp.io/v1alpha1", "pods": "api/v1", "deployments": "apis/apps/v1"}


def eventually(look: Callable[[], T | None], *, seconds: float = SECONDS, what: str = "") -> T:
    """The first true answer of `look`; an assertion error with the last answer when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or look}; last: {answer!r}"
        time.sleep(0.05)
    return answer


@dataclass
class Operator:
    """One operator process."""

    kubeconfig: Path
    log: Path
    namespaces: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    more: tuple[str, ...] = field(default=())

    def start(self, *, wait: bool = True) -> None:
        chosen = [word for namespace in self.namespaces for word in ("--namespace", namespace)]
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": str(specs.ROOT / "operator" / "src"),
        }
        self.port = free_port()
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kvpp_operator", "run", "--listen", f"127.0.0.1:{self.port}", *chosen, *self.more],
                env=environment, stdout=out, stderr=out,
            )  # fmt: skip
        if wait:
            eventually(self.is_ready, what=f"operator ready, see {self.log}")

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text("utf-8")[-4000:]
        with contextlib.suppress(urllib.error.URLError, OSError):
            answer = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2)
            return bool(answer.status == 200)
        return False

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines() if line.startswith("{")]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


@dataclass
class Cluster:
    """The test's namespace, as a user sees it."""

    cluster: LocalCluster
    namespace: str

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, input=input)

    def apply(self, body: dict[str, Any]) -> None:
        body = {**body, "metadata": {"name": body["metadata"]["name"]}}
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump(body))

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def deployment(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get("kvpp", name)
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """A condition about the present generation; empty while there is none."""
        found = self.deployment(name)
        conditions = found.get("status", {}).get("conditions", [])
        return next(
            (c for c in conditions if c["type"] == kind and c["observedGeneration"] == found["metadata"]["generation"]),
            {},
        )

    def wait(self, name: str, kind: str, status: str = "True", *, seconds: float = SECONDS) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.condition(name, kind)
            return found if found.get("status") == status else None

        return eventually(
            look, seconds=seconds, what=f"{kind}={status} of {name}: {self.deployment(name).get('status')}"
        )

    def owned(self, name: str) -> list[dict[str, Any]]:
        """Everything that carries our mark for a deployment."""
        kinds = (
            "deployments,statefulsets,services,serviceaccounts,configmaps,controllerrevisions,roles,rolebindings,leases,"
            "poddisruptionbudgets,networkpolicies"
        )
        items: list[dict[str, Any]] = self.get(
            kinds, "--selector", f"serving.kvpp.io/deployment={name}", "--show-managed-fields"
        )["items"]
        return items

    def items(self, plural: str) -> list[dict[str, Any]]:
        """Objects of the namespace by one plain request: cheaper than a kubectl where something is awaited."""
        found: list[dict[str, Any]] = self.cluster.get(f"/{PATHS[plural]}/namespaces/{self.namespace}/{plural}")[
            "items"
        ]
        return found

    def claims(self) -> list[dict[str, Any]]:
        """Claims of the namespace's deployments in the port ledger, by first port."""
        return [claim for claim in ledger_claims(self.cluster) if claim["namespace"] == self.namespace]


def ledger_claims(cluster: LocalCluster) -> list[dict[str, Any]]:
    """All claims in the port ledger, by first port; none when there is no ledger."""
    ledgers = cluster.get("/apis/serving.kvpp.io/v1alpha1/kvppportledgers")["items"]
    return [claim for ledger in ledgers for claim in ledger["spec"]["claims"]]
