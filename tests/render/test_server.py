"""A real API server takes every golden manifest, LeaderWorkerSet's webhooks included: a dry run, strict about fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvpp_devcluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

GOLDEN = sorted(path for path in (Path(__file__).parent / "golden").glob("*.yaml") if path.stat().st_size)

POD_GROUP = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.volcano.sh",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    },
    "spec": {
        "group": "scheduling.volcano.sh",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "minMember": {"type": "integer", "format": "int32"},
                                    "minResources": {
                                        "type": "object",
                                        "additionalProperties": {
                                            "anyOf": [{"type": "integer"}, {"type": "string"}],
                                            "x-kubernetes-int-or-string": True,
                                        },
                                    },
                                    "priorityClassName": {"type": "string"},
                                    "queue": {"type": "string"},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
"""The fields of Volcano's PodGroup that we write, as volcano.sh/apis declares them; the controller itself can't be had."""


@pytest.fixture(scope="module")
def server(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    local_cluster.start_lws()
    local_cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(POD_GROUP))
    local_cluster.kubectl("wait", "crd/podgroups.scheduling.volcano.sh", "--for=create", "--timeout=60s")
    local_cluster.kubectl("wait", "crd/podgroups.scheduling.volcano.sh", "--for=condition=Established", "--timeout=60s")
    yield local_cluster
    # Other tests see a cluster without Volcano.
    local_cluster.kubectl("delete", "crd", "podgroups.scheduling.volcano.sh")


def with_pods_of_groups(manifests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of a custom resource the server checks types only; as Deployments its pod templates are checked whole."""
    for manifest in manifests:
        yield manifest
        group = manifest.get("spec", {}).get("leaderWorkerTemplate", {})
        for rank in ("leaderTemplate", "workerTemplate"):
            if rank in group:
                name = f"{manifest['metadata']['name']}-{rank[:6]}"
                metadata = {"name": name, "namespace": manifest["metadata"]["namespace"]}
                spec = {"selector": {"matchLabels": group[rank]["metadata"]["labels"]}, "template": group[rank]}
                yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_the_server_takes_it(server: LocalCluster, file: Path) -> None:
    manifests = list(with_pods_of_groups(list(yaml.safe_load_all(file.read_text("utf-8")))))
    taken = server.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        input=yaml.safe_dump_all(manifests),
    )
    assert len(taken.splitlines()) == len(manifests)
