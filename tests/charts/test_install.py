"""Install, upgrade and uninstall by the real Helm on the real control plane; a simulated node runs the operator's pod."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import specs
import yaml
from operator_process import Cluster, Operator

from kvpp_devcluster.processes import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvpp_devcluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "charts" / "kvpp-operator"
CRDS = sorted(
    f"customresourcedefinition.apiextensions.k8s.io/{yaml.safe_load(path.read_text())['metadata']['name']}"
    for path in (CHART / "files" / "crds").glob("*.yaml")
)
SECONDS = 120.0
# Made by controllers for any pod or node at any time, or by the API server for each group of a CRD.
NOT_OURS = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "apiservices.apiregistration.k8s.io"}


@pytest.fixture
def restricted(local_cluster: LocalCluster, namespace: str) -> str:
    """Label the namespace so that the API server refuses every pod that is not "restricted"."""
    local_cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    return namespace


@pytest.fixture(autouse=True)
def _no_crds_left(local_cluster: LocalCluster) -> Iterator[None]:
    """Helm adopts no CRD that another release has left."""
    yield
    for crd in CRDS:
        local_cluster.kubectl("delete", crd, "--ignore-not-found")


@contextmanager
def installed(cluster: LocalCluster, namespace: str, *arguments: str, chart: Path = CHART) -> Iterator[None]:
    try:
        cluster.helm("install", "kvpp", str(chart), "-n", namespace, "--wait", "--timeout=180s", *arguments)
        yield
    finally:
        cluster.helm("uninstall", "kvpp", "-n", namespace, "--wait", "--ignore-not-found")


def test_uninstall_leaves_the_crds_and_nothing_else(local_cluster: LocalCluster, restricted: str) -> None:
    before = everything(local_cluster)
    with installed(local_cluster, restricted):
        added = everything(local_cluster) - before
        assert {f"deployment.apps/{restricted}/kvpp-kvpp-operator", *CRDS} <= added
        (pod,) = items(local_cluster, restricted, "pods")
        assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "True"
    left: set[str] = set()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        left = everything(local_cluster) - before
        if left == set(CRDS):
            break
        time.sleep(0.2)
    assert left == set(CRDS)


def test_upgrade_reaches_the_crds_and_the_configuration(
    local_cluster: LocalCluster, restricted: str, tmp_path: Path
) -> None:
    """The CRDs are templates because what lies in a chart's crds/ is never upgraded."""
    old = tmp_path / "chart"
    shutil.copytree(CHART, old)
    without_columns(old / "files" / "crds")
    with installed(local_cluster, restricted, chart=old):
        assert columns(local_cluster) == {crd: [] for crd in CRDS}
        (before,) = items(local_cluster, restricted, "pods")
        upgrade(local_cluster, restricted, "--set", "config.driverMounts=Host", "--wait")
        assert all(columns(local_cluster).values())
        running = [
            pod for pod in items(local_cluster, restricted, "pods") if "deletionTimestamp" not in pod["metadata"]
        ]
        assert [pod["metadata"]["uid"] for pod in running] != [before["metadata"]["uid"]]
        assert len(running) == 1
        # Handing the CRDs over to somebody else must not delete every deployment.
        upgrade(local_cluster, restricted, "--set", "crds.install=false")
        assert set(CRDS) <= everything(local_cluster)


def test_a_second_apply_finds_no_difference(local_cluster: LocalCluster, restricted: str) -> None:
    """GitOps tools compare like this, by the client and by a dry run of the server; exit 1 would be a difference."""
    with installed(local_cluster, restricted):
        for example in specs.EXAMPLES:
            local_cluster.kubectl("apply", "-n", restricted, "-f", str(example))
            local_cluster.kubectl("diff", "-n", restricted, "-f", str(example))
            manager = ("--server-side", "--force-conflicts", "--field-manager=argocd-controller")
            local_cluster.kubectl("apply", "-n", restricted, *manager, "-f", str(example))
            local_cluster.kubectl("diff", "-n", restricted, *manager, "-f", str(example))
        local_cluster.kubectl("delete", "kvpp", "--all", "-n", restricted)


def test_deployments_outlive_the_operator(local_cluster: LocalCluster, restricted: str) -> None:
    with installed(local_cluster, restricted):
        example = CHART.parents[1] / "examples" / "1-one-node.yaml"
        local_cluster.kubectl("apply", "-n", restricted, "-f", str(example))
    assert [found["metadata"]["name"] for found in items(local_cluster, restricted, "kvppdeployments")] != []
    with installed(local_cluster, restricted):  # and the next release of that name takes over the CRDs that are there
        assert [found["metadata"]["name"] for found in items(local_cluster, restricted, "kvppdeployments")] != []


def test_crds_applied_by_hand_are_taken_over_when_asked(local_cluster: LocalCluster, restricted: str) -> None:
    for path in sorted((CHART / "files" / "crds").glob("*.yaml")):
        local_cluster.kubectl("apply", "--server-side", "-f", str(path))
    with (
        pytest.raises(ProgramError, match="cannot be imported into the current release"),
        installed(local_cluster, restricted),
    ):
        pass
    with installed(local_cluster, restricted, "--take-ownership", "--force-conflicts"):
        assert set(CRDS) <= everything(local_cluster)


def test_rights_in_listed_namespaces_only(local_cluster: LocalCluster, restricted: str) -> None:
    local_cluster.kubectl("create", "namespace", "team-a")
    try:
        with installed(local_cluster, restricted, "--set", "config.watchNamespaces={team-a}"):
            account = f"system:serviceaccount:{restricted}:kvpp-kvpp-operator"
            assert {place: can_list(local_cluster, account, place) for place in ("team-a", restricted)} == {
                "team-a": True,
                restricted: False,
            }
    finally:
        local_cluster.kubectl("delete", "namespace", "team-a", "--wait=false")


def test_operator_works_with_rights_in_listed_namespaces_only(
    local_cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    """The process with the chart's token; anything that it may not do would show as a watch that is refused."""
    with installed(local_cluster, namespace, "--set", f"config.watchNamespaces={{{namespace}}}"):
        kubeconfig = local_cluster.control_plane.kubeconfig_for_service_account(namespace, "kvpp-kvpp-operator")
        operator = Operator(kubeconfig, tmp_path / "operator.log", namespaces=(namespace,))
        operator.start()
        try:
            user = Cluster(local_cluster, namespace)
            user.apply(specs.deployment(specs.UNIFIED))
            user.wait("demo", "Ready", seconds=SECONDS)
            user.kubectl("delete", "kvpp", "demo", "--wait")
        finally:
            assert operator.stop() == 0
        assert [line for line in operator.logged() if "orbidden" in str(line)] == []


def test_what_the_role_hands_on_it_may_hand_on(
    local_cluster: LocalCluster, restricted: str, roles_of_pods: list[dict[str, Any]]
) -> None:
    """The API server refuses a Role with rights that its writer lacks; these are the Roles of pool and router pods."""
    rules = [rule for role in roles_of_pods for rule in role["rules"]]
    with installed(local_cluster, restricted):
        account = f"system:serviceaccount:{restricted}:kvpp-kvpp-operator"
        apply_role(local_cluster, account, restricted, rules)
        secrets = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
        with pytest.raises(ProgramError, match="attempting to grant RBAC permissions not currently held"):
            apply_role(local_cluster, account, restricted, secrets)


def upgrade(cluster: LocalCluster, namespace: str, *arguments: str) -> None:
    cluster.helm("upgrade", "kvpp", str(CHART), "-n", namespace, "--timeout=180s", *arguments)


def apply_role(cluster: LocalCluster, account: str, namespace: str, rules: list[dict[str, Any]]) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "handed-on", "namespace": namespace},
        "rules": rules,
    }
    flags = ("--server-side", f"--as={account}", "--force-conflicts", "-f", "-")
    cluster.kubectl("apply", *flags, input=json.dumps(role))


def everything(cluster: LocalCluster) -> set[str]:
    """Every object of every kind: `kind.group/namespace/name`."""
    kinds = [
        name for name in cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split() if name not in NOT_OURS
    ]
    listed = json.loads(
        cluster.kubectl("get", ",".join(kinds), "-A", "-o", "json", "--ignore-not-found") or '{"items": []}'
    )
    return {address(found) for found in listed["items"]}


def address(found: dict[str, Any]) -> str:
    group, _, _ = found["apiVersion"].rpartition("/")
    kind = ".".join(filter(None, [found["kind"].lower(), group]))
    meta = found["metadata"]
    return "/".join(filter(None, [kind, meta.get("namespace", ""), meta["name"]]))


def items(cluster: LocalCluster, namespace: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]
    return found


def columns(cluster: LocalCluster) -> dict[str, list[Any]]:
    found = {crd: json.loads(cluster.kubectl("get", crd, "-o", "json"))["spec"]["versions"][0] for crd in CRDS}
    return {crd: version.get("additionalPrinterColumns", []) for crd, version in found.items()}


def without_columns(folder: Path) -> None:
    """Make the CRDs of an older chart: the server then adds its own column for the age, and none else."""
    for path in folder.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        del crd["spec"]["versions"][0]["additionalPrinterColumns"]
        path.write_text(yaml.safe_dump(crd))


def can_list(cluster: LocalCluster, account: str, namespace: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "resourceAttributes": {
                "group": "serving.kvpp.io",
                "resource": "kvppdeployments",
                "verb": "list",
                "namespace": namespace,
            },
        },
    }
    answer = json.loads(cluster.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(review)))
    allowed: bool = answer["status"]["allowed"]
    return allowed
