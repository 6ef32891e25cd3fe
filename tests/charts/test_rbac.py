"""The operator's rights are those that its code uses, neither more nor less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kvpp_operator.manifest import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    Template = Callable[..., str]
    Rights = dict[tuple[str, str], set[str]]

# kopf lists and watches; `cluster.apply` reads what the watches do not show, applies (create, patch) and prunes.
OWNED = {"get", "list", "watch", "create", "patch", "delete"}

# (API group, resource, verbs, who needs them)
BESIDE_OWNED = (
    ("serving.kvpp.io", "kvppdeployments", "get list watch", "controller: what is wished"),
    ("serving.kvpp.io", "kvppdeployments/status", "patch", "Cluster.apply_status"),
    (
        "serving.kvpp.io",
        "kvppdeployments/finalizers",
        "update",
        "blockOwnerDeletion, OwnerReferencesPermissionEnforcement",
    ),
    ("", "pods", "get list watch", "status.engines: why an engine is not ready"),
    ("", "pods", "delete", "controller.engines.release: pods of a lost node"),
    ("events.k8s.io", "events", "get create patch", "controller.emit: transitions of conditions"),
    ("events.k8s.io", "events", "list", "controller.engines.explain: why there is no pod"),
)
LEDGER = (("serving.kvpp.io", "kvppportledgers", "get list watch create update", "cluster.ledger: compare-and-swap"),)
NAMESPACES = (("", "namespaces", "get list watch", "controller.reconcile.stop: engines of one that is being deleted"),)
HEALING = (
    ("", "pods", "list", "cluster.ledger: what runs"),
    ("apps", "deployments", "list", "cluster.ledger: what runs"),
    ("leaderworkerset.x-k8s.io", "leaderworkersets", "list", "cluster.ledger: what runs"),
)


def group_of(kind: Kind) -> str:
    return kind.api_version.rpartition("/")[0]


def rights(rows: tuple[tuple[str, str, str, str], ...]) -> Rights:
    found: Rights = {}
    for group, resource, verbs, _ in rows:
        found.setdefault((group, resource), set()).update(verbs.split())
    return found


def granted(role: dict[str, Any]) -> Rights:
    found: Rights = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def together(*many: Rights) -> Rights:
    found: Rights = {}
    for some in many:
        for place, verbs in some.items():
            found.setdefault(place, set()).update(verbs)
    return found


@pytest.fixture
def needed(roles_of_pods: list[dict[str, Any]]) -> Rights:
    """Collect what the code uses, and what Roles of a deployment's pods say: nobody may grant a right that they lack."""
    owned = {(group_of(kind), kind.plural): set(OWNED) for kind in KINDS}
    return together(owned, rights(BESIDE_OWNED), *(granted(role) for role in roles_of_pods))


def test_cluster_role_holds_what_the_code_uses(template: Template, needed: Rights) -> None:
    assert granted(role_of(template(), "ClusterRole", "test-kvpp-operator")) == needed | rights((*NAMESPACES, *LEDGER))


def test_a_list_of_namespaces_takes_only_the_ledger_from_the_cluster(template: Template, needed: Rights) -> None:
    text = template({"config": {"watchNamespaces": ["team-a", "team-b"]}})
    names = [m["metadata"]["name"] for m in yaml.safe_load_all(text) if m and m["kind"] == "ClusterRole"]
    assert names == ["kvpp-system-test-kvpp-operator-ports"]
    assert granted(role_of(text, "ClusterRole", names[0])) == rights(LEDGER)
    for namespace in ("team-a", "team-b"):
        assert granted(role_of(text, "Role", "test-kvpp-operator", namespace)) == needed


def test_a_look_at_all_pods_is_opt_in_with_a_list_of_namespaces(template: Template) -> None:
    text = template({"config": {"watchNamespaces": ["team-a"]}, "rbac": {"hostNetwork": True}})
    ports = role_of(text, "ClusterRole", "kvpp-system-test-kvpp-operator-ports")
    assert granted(ports) == rights((*LEDGER, *HEALING))


def test_no_wildcards_no_secrets(template: Template) -> None:
    for (group, resource), verbs in granted(role_of(template(), "ClusterRole", "test-kvpp-operator")).items():
        assert "*" not in {group, resource, *verbs}
        assert resource != "secrets"


def test_people_may_do_with_deployments_what_they_may_do_with_others(template: Template) -> None:
    text = template()
    deployments = ("serving.kvpp.io", "kvppdeployments")
    assert granted(role_of(text, "ClusterRole", "test-kvpp-operator-view"))[deployments] == {"get", "list", "watch"}
    assert granted(role_of(text, "ClusterRole", "test-kvpp-operator-edit")) == {
        deployments: {"create", "update", "patch", "delete", "deletecollection"}
    }


def role_of(text: str, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
    identity = (kind, name, namespace)
    found: dict[str, Any] = next(
        m
        for m in yaml.safe_load_all(text)
        if m and (m["kind"], m["metadata"]["name"], m["metadata"].get("namespace")) == identity
    )
    return found
