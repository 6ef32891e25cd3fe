"""The real operator as a process, with the chart's ServiceAccount token, against the local cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import specs
import yaml
from operator_process import Cluster, Operator, eventually
from typer.testing import CliRunner

from kvpp_devcluster.cluster import LocalCluster
from kvpp_operator.cli.app import app

CHART = specs.ROOT / "charts" / "kvpp-operator"


@pytest.fixture
def kvpp_validate() -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Findings of `kvpp validate -o json` on one deployment."""

    def findings(body: dict[str, Any]) -> list[dict[str, Any]]:
        result = CliRunner().invoke(app, ["validate", "-o", "json", "-"], input=yaml.safe_dump(body))
        assert result.exit_code == 1, result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)["documents"][0]["findings"]
        return found

    return findings


@pytest.fixture(scope="session")
def crds(local_cluster: LocalCluster) -> None:
    """The generated CRDs, as a user applies them."""
    for file in sorted((specs.ROOT / "crds").glob("*.yaml")):
        local_cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
        name = yaml.safe_load(file.read_text("utf-8"))["metadata"]["name"]
        eventually(partial(is_established, local_cluster, name), what=f"{name} established")


def is_established(cluster: LocalCluster, name: str) -> bool:
    """`kubectl wait` fails on an object that has no conditions yet."""
    status = json.loads(cluster.kubectl("get", "crd", name, "-o", "json")).get("status", {})
    return any(c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions") or ())


@pytest.fixture(scope="session")
def operator_kubeconfig(local_cluster: LocalCluster, crds: None) -> Path:
    """The chart's ServiceAccount with the chart's rights, and no more."""
    local_cluster.kubectl(
        "apply",
        "-f",
        "-",
        input=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kvpp-system"}}),
    )
    rendered = local_cluster.helm(
        "template", "kvpp", str(CHART), "--namespace", "kvpp-system", "--set", "crds.install=false"
    )
    wanted = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    rights = [body for body in yaml.safe_load_all(rendered) if body and body["kind"] in wanted]
    local_cluster.kubectl("apply", "--namespace", "kvpp-system", "-f", "-", input=yaml.safe_dump_all(rights))
    [account] = [body["metadata"]["name"] for body in rights if body["kind"] == "ServiceAccount"]
    return local_cluster.control_plane.kubeconfig_for_service_account("kvpp-system", account)


@pytest.fixture
def operator(operator_kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """Running, watching the test's namespace's deployments among all others."""
    process = Operator(operator_kubeconfig, tmp_path / "operator.log")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def user(local_cluster: LocalCluster, namespace: str, crds: None) -> Cluster:
    weights = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights"},
        "spec": {"accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeName": f"weights-{namespace}", "resources": {"requests": {"storage": "1Ti"}}},
    }  # fmt: skip
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"weights-{namespace}"},
        "spec": {"capacity": {"storage": "1Ti"}, "accessModes": ["ReadOnlyMany"], "storageClassName": "",
                 "claimRef": {"namespace": namespace, "name": "weights"}, "hostPath": {"path": "/mnt/models"}},
    }  # fmt: skip
    found = Cluster(local_cluster, namespace)
    found.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([volume, weights]))
    return found
