"""Where scenarios take place: what a user would do with kubectl, Helm and curl, and what is seen on the hosts."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from e2e import images
from kvpp_devcluster.controlplane import ApiError
from kvpp_operator.catalogue.chips import BY_NAME, DRIVER_TREE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvpp_devcluster.hosts import HostCluster

Json = dict[str, Any]
T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
SYSTEM = "kvpp-system"
RELEASE = "kvpp-operator"
OPERATOR = "app.kubernetes.io/component=operator"
MODELS = Path("/mnt/models")
WEIGHTS = ("GLM-5.2-W4A8C8", "GLM-5.2-W8A8C8-mxfp8")
POLL_SECONDS = 0.5
NOT_OURS = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "apiservices.apiregistration.k8s.io"}
# What a user changes for a small machine without NPUs: another image, no CPUs set aside.
SIMULATED: Json = {
    "engine": {
        "image": {"repository": "localhost/kvpp-engine-simulator", "tag": images.version()},
        "podTemplate": {"spec": {"containers": [{"name": "vllm", "resources": {"requests": {"cpu": "50m"}}}]}},
    }
}


@dataclass
class Place:
    cluster: HostCluster
    say: Callable[[str], None]
    archives: Path
    before_install: frozenset[str] = frozenset()

    def make_host_files(self) -> None:
        """Lay out what NPU drivers and an administrator leave on a host; all hosts share one root here."""
        for mount in (*BY_NAME["950DT"].small_files, *DRIVER_TREE):
            path = Path(mount.path)
            folder = path if mount.type == "Directory" else path.parent
            folder.mkdir(parents=True, exist_ok=True)
            if mount.type == "File":
                path.touch()
        for name in WEIGHTS:
            (MODELS / name).mkdir(parents=True, exist_ok=True)

    def install(self, *values: str) -> None:
        """`helm install`, in a namespace that admits restricted pods only."""
        self.before_install = frozenset(self.objects())
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}})
        chart = str(ROOT / "charts/kvpp-operator")
        self.cluster.helm("install", RELEASE, chart, "--namespace", SYSTEM, "--wait", "--timeout=90s", *values)
        self.say("the operator is installed and ready")

    def objects(self) -> set[str]:
        """Name every object of the cluster but those that controllers make for any pod or node at any time."""
        kinds = set(self.cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()) - NOT_OURS
        found = self.cluster.kubectl("get", ",".join(sorted(kinds)), "--all-namespaces", "--output=name")
        return set(found.split())

    def next_operator(self) -> str:
        """Put an operator's image of other content on every host, and return its tag."""
        tag = f"{images.version()}-next"
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "image.tar"
            self.cluster.load([images.changed(self.archives / "kvpp-operator.tar", tag, target)])
        return tag

    def scale_operator(self, replicas: int) -> None:
        kubectl = self.cluster.kubectl
        kubectl("scale", f"deployment/{RELEASE}", "-n", SYSTEM, f"--replicas={replicas}")
        self.until(f"{replicas} operators run", lambda: len(self.pods(SYSTEM, OPERATOR)) == replicas, seconds=60)

    def kill_container(self, pod: Json) -> None:
        """Kill a pod's first container as a fault would: its host does it, no one in the API knows beforehand."""
        host = next(one for one in self.cluster.hosts if one.plan.name == pod["spec"]["nodeName"])
        container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        host.ctr("tasks", "kill", "--signal", "SIGKILL", container)

    def apply(self, *objects: Json, namespace: str = "default") -> None:
        text = yaml.safe_dump_all(objects)
        self.cluster.kubectl("apply", "--namespace", namespace, "--filename=-", input=text)

    def get(self, kind: str, *words: str, namespace: str = "default") -> Json:
        found: Json = json.loads(self.cluster.kubectl("get", kind, *words, "-n", namespace, "--output=json"))
        return found

    def pods(self, namespace: str, selector: str = "") -> list[Json]:
        found: list[Json] = self.get("pods", f"--selector={selector}", namespace=namespace)["items"]
        return found

    def until(
        self, what: str, look: Callable[[], T | None], *, seconds: float, poll_seconds: float = POLL_SECONDS
    ) -> T:
        """Wait until `look` finds something; tell what was waited for, and for how long."""
        started = time.monotonic()
        while True:
            if found := look():
                self.say(f"{what} ({time.monotonic() - started:.1f} s)")
                return found
            self.cluster.require_running()
            assert time.monotonic() - started < seconds, f"not {what} after {seconds:.0f} s"
            time.sleep(poll_seconds)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace for one scenario, whose NPUs are free again afterwards.

        Deployments go first: while pods are left, the namespace controller rests for half of their longest grace period.
        """
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield name
        if self.before_install:
            self.cluster.kubectl("delete", "kvppdeployments", "--all", "-n", name)
        self.cluster.kubectl("delete", "pods", "--all", "-n", name, "--wait=false")
        self.until(f"nothing runs in namespace {name}", lambda: not self.pods(name), seconds=60)
        self.delete_namespace(name)

    def delete_namespace(self, name: str) -> None:
        """It must be gone by itself within a minute."""
        self.cluster.kubectl("delete", "namespace", name, "--wait=false")
        self.until(f"namespace {name} is gone", lambda: self.is_gone(f"/api/v1/namespaces/{name}"), seconds=60)

    def is_gone(self, path: str) -> bool:
        try:
            self.cluster.get(path)
        except ApiError as error:
            return error.status == 404
        return False

    def deployment(self, namespace: str, name: str) -> Json:
        return self.get("kvppdeployment", name, namespace=namespace)

    def until_ready(self, namespace: str, name: str, *, seconds: float) -> Json:
        """Wait for Ready=True of the present generation; every change of its reason is a line of progress."""
        last = ""

        def look() -> Json | None:
            nonlocal last
            found = self.deployment(namespace, name)
            ready = condition(found, "Ready")
            now = f"{ready.get('reason', 'no status yet')}: {ready.get('message', '')}"
            if now != last:
                self.say(f"{name}: {now[:150]}")
                last = now
            current = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            return found if current and ready.get("status") == "True" else None

        return self.until(f"{name} is Ready", look, seconds=seconds)

    def dump(self) -> None:
        """Keep for whoever asks why: objects, events, pods' logs."""
        logs = Path(os.environ["KVPP_E2E_LOGS"])
        kubectl = self.cluster.kubectl
        wanted = "nodes,pods,events,deployments,leaderworkersets,services,endpointslices,configmaps"
        (logs / "objects.yaml").write_text(kubectl("get", wanted, "-A", "-o", "yaml"))
        (logs / "pods.txt").write_text(kubectl("get", "pods", "-A", "-o", "wide"))


def weights(namespace: str) -> tuple[Json, Json]:
    """What an administrator provides: a volume with the models, and its claim."""
    size, shared = {"storage": "2Ti"}, {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    claim = {"namespace": namespace, "name": "weights"}
    path = {"path": str(MODELS), "type": "Directory"}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "e2e-weights"},
         "spec": {**shared, "capacity": size, "claimRef": claim, "hostPath": path}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights"},
         "spec": {**shared, "volumeName": "e2e-weights", "resources": {"requests": size}}},
    )  # fmt: skip


def condition(found: Json, kind: str) -> Json:
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def example(name: str, *changes: Json) -> Json:
    """A file of examples/ with a user's changes on top."""
    body: Json = yaml.safe_load((ROOT / "examples" / name).read_text("utf-8"))
    for change in (SIMULATED, *changes):
        body["spec"] = merged(body["spec"], change)
    return body


def merged(under: Json, over: Json) -> Json:
    both = dict(under)
    for key, value in over.items():
        nested = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if nested else value
    return both
