"""A cluster without the LeaderWorkerSet API: the deployment says so, says how to install it, and heals when it appears."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import specs
from operator_process import Cluster, Operator, eventually

from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.nodes import NodeGroup

pytestmark = pytest.mark.cluster

SECONDS = 150.0
TWO_NODES: dict[str, Any] = {"tensor": 8, "pipeline": 2, "expert": True}


@pytest.fixture
def bare() -> Iterator[LocalCluster]:
    """Of its own: in the session's cluster another test may have installed the API."""
    with LocalCluster(groups=(NodeGroup("npu", 2, {"huawei.com/npu": "8"}),)) as cluster:
        for file in sorted((specs.ROOT / "crds").glob("*.yaml")):
            cluster.kubectl("apply", "--server-side", "-f", str(file))
        yield cluster


def warnings(user: Cluster) -> list[str]:
    return [event["note"] for event in user.get("events.events.k8s.io")["items"] if event["reason"] == "MissingApi"]


def test_the_api_is_named_with_its_remedy_and_appears(bare: LocalCluster, tmp_path: Path) -> None:
    user = Cluster(bare, "default")
    operator = Operator(bare.kubeconfig, tmp_path / "operator.log")
    operator.start()
    try:
        user.apply(specs.deployment(specs.UNIFIED, unified__parallelism=TWO_NODES))
        applied = user.wait("demo", "Applied", "False", seconds=SECONDS)
        assert applied["reason"] == "MissingApi"
        assert "LeaderWorkerSet v0.6.0 or newer" in applied["message"]
        assert "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/" in applied["message"]
        assert user.condition("demo", "Stalled")["status"] == "True"
        [note] = eventually(lambda: warnings(user), seconds=SECONDS)
        assert note == applied["message"]
        assert user.owned("demo") == []
        bare.start_lws()
        user.wait("demo", "Ready", seconds=SECONDS)
        assert user.condition("demo", "Stalled")["status"] == "False"
    finally:
        operator.stop()
