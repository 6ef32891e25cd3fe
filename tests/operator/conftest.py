"""The real operator as a process, with the chart's ServiceAccount token, against the local cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chart
import pytest
import yaml
from click.testing import CliRunner
from operator_process import Cluster, Operator

from kvpp_devcluster.cluster import LocalCluster
from kvpp_operator.cli.app import app


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
    chart.install_crds(local_cluster)


@pytest.fixture(scope="session")
def operator_kubeconfig(local_cluster: LocalCluster, crds: None) -> Path:
    return chart.operator_kubeconfig(local_cluster)


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
