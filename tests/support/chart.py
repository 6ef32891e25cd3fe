"""What `helm install` brings to a cluster, without the operator's pod: definitions and rights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import specs
import yaml
from operator_process import eventually

from kvpp_devcluster.cluster import LocalCluster

CHART = specs.ROOT / "charts" / "kvpp-operator"
NAMESPACE = "kvpp-system"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def install_crds(cluster: LocalCluster) -> None:
    """The generated CRDs, as a user applies them; returns when they are served."""
    for file in sorted((specs.ROOT / "crds").glob("*.yaml")):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
        name = yaml.safe_load(file.read_text("utf-8"))["metadata"]["name"]
        eventually(partial(is_established, cluster, name), what=f"{name} established")


def is_established(cluster: LocalCluster, name: str) -> bool:
    """`kubectl wait` fails on an object that has no conditions yet."""
    status = json.loads(cluster.kubectl("get", "crd", name, "-o", "json")).get("status", {})
    return any(c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions") or ())


def operator_kubeconfig(cluster: LocalCluster, *, release: str = "kvpp", values: Sequence[str] = ()) -> Path:
    """The chart's ServiceAccount with the chart's rights, and no more. `values` as in `helm --set`."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(namespace))
    settings = [word for value in ("crds.install=false", *values) for word in ("--set", value)]
    rendered = cluster.helm("template", release, str(CHART), "--namespace", NAMESPACE, *settings)
    rights = [body for body in yaml.safe_load_all(rendered) if body and body["kind"] in RIGHTS]
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(rights))
    [account] = [body["metadata"]["name"] for body in rights if body["kind"] == "ServiceAccount"]
    return cluster.control_plane.kubeconfig_for_service_account(NAMESPACE, account)
