"""What we wish an API object to be: its identity, its place in the order of things, and the marks by which we know it.

A manifest is a plain JSON tree with `apiVersion`, `kind` and `metadata.name`.  Nothing in here reads or writes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvpp_operator import names

Manifest = dict[str, Any]

API_VERSION = f"{names.DOMAIN}/v1alpha1"
KIND = "KVPPDeployment"
WISH_ANNOTATION = f"{names.DOMAIN}/wish"


class DeploymentKey(NamedTuple):
    """Which KVPPDeployment: the unit of work of the controller."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Key(NamedTuple):
    """Identity of an object by its address; two objects that follow each other under one address differ in uid only."""

    api_version: str
    kind: str
    namespace: str  # "" where the kind is cluster-scoped
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The KVPPDeployment that controls an object.  `uid` is empty offline, where no API server has given one."""

    key: DeploymentKey
    uid: str = ""

    @classmethod
    def of(cls, body: Manifest) -> Owner:
        """Owner from a KVPPDeployment as the API server returns it."""
        meta = body["metadata"]
        return cls(DeploymentKey(meta.get("namespace", ""), meta["name"]), meta.get("uid", ""))

    @property
    def reference(self) -> Manifest:
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.key.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """Where a kind lives in the API, and when its objects are applied."""

    api_version: str
    name: str
    plural: str
    order: int = 0
    optional: bool = False  # the API may be absent from a cluster, and may appear later
    namespaced: bool = True

    @property
    def is_workload(self) -> bool:
        return self.order >= WORKLOAD_ORDER


WORKLOAD_ORDER = 50

# Applied from the top: what a pod refers to stands before the pod, else it starts without it or is restarted by it.
# The record of a revision stands before its workloads: a kill between the two leaves a record, never unknown engines.
KINDS: tuple[Kind, ...] = (
    Kind("v1", "ServiceAccount", "serviceaccounts", 0),
    Kind("rbac.authorization.k8s.io/v1", "Role", "roles", 5),
    Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", 6),
    Kind("v1", "ConfigMap", "configmaps", 10),
    Kind("apps/v1", "ControllerRevision", "controllerrevisions", 12),
    Kind("coordination.k8s.io/v1", "Lease", "leases", 14),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", 20),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", 22),
    Kind("v1", "Service", "services", 30),
    Kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups", 40, optional=True),
    Kind("apps/v1", "Deployment", "deployments", WORKLOAD_ORDER),
    Kind("apps/v1", "StatefulSet", "statefulsets", WORKLOAD_ORDER),
    Kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", WORKLOAD_ORDER, optional=True),
    Kind("networking.serving.volcano.sh/v1alpha1", "ModelServer", "modelservers", 60, optional=True),
    Kind("networking.serving.volcano.sh/v1alpha1", "ModelRoute", "modelroutes", 61, optional=True),
)

DEPLOYMENTS = Kind(API_VERSION, KIND, "kvppdeployments")
PODS = Kind("v1", "Pod", "pods")
LEASES = next(kind for kind in KINDS if kind.name == "Lease")
NAMESPACES = Kind("v1", "Namespace", "namespaces", namespaced=False)
LEDGERS = Kind(API_VERSION, "KVPPPortLedger", "kvppportledgers", namespaced=False, optional=True)

# Read or written, but not owned by a deployment.
OTHER_KINDS: tuple[Kind, ...] = (
    DEPLOYMENTS,
    PODS,
    NAMESPACES,
    Kind("v1", "Node", "nodes", namespaced=False),
    Kind("v1", "Secret", "secrets"),
    Kind("v1", "ResourceQuota", "resourcequotas"),
    Kind("events.k8s.io/v1", "Event", "events"),
    Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False),
    Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    Kind("batch/v1", "Job", "jobs"),
    Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False),
    LEDGERS,
)

KIND_OF: dict[tuple[str, str], Kind] = {(kind.api_version, kind.name): kind for kind in (*KINDS, *OTHER_KINDS)}


def key_of(manifest: Manifest) -> Key:
    meta = manifest["metadata"]
    return Key(manifest["apiVersion"], manifest["kind"], meta.get("namespace", ""), meta["name"])


def kind_of(key: Key) -> Kind:
    """Kind of a key.  `KeyError` names a kind that no table of this module lists."""
    return KIND_OF[key.api_version, key.kind]


def apply_order(manifest: Manifest) -> tuple[int, Key]:
    """Sort key: the order of creation; reversed, the order of deletion."""
    key = key_of(manifest)
    return kind_of(key).order, key


def controller_of(manifest: Manifest) -> Manifest | None:
    """Find the one owner reference with `controller: true`."""
    references = manifest["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def wish_hash(manifest: Manifest) -> str:
    """Hash of a wished manifest, without its own annotation and without the owner's identity.

    Offline there is no uid to refer to, and the hash printed there must be the one that is applied.
    """
    meta = {name: value for name, value in manifest["metadata"].items() if name != "ownerReferences"}
    meta["annotations"] = {k: v for k, v in (meta.get("annotations") or {}).items() if k != WISH_ANNOTATION}
    canonical = json.dumps({**manifest, "metadata": meta}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def wish_of(manifest: Manifest) -> str | None:
    """Hash that a live object carries."""
    annotations: dict[str, str] = manifest["metadata"].get("annotations") or {}
    return annotations.get(WISH_ANNOTATION)


def stamp(manifest: Manifest, *, labels: dict[str, str], owner: Owner) -> Manifest:
    """Copy a manifest, adding labels, the owner reference and the annotation that carries the hash of the wish.

    `labels` give way to what the manifest says itself, except for the one that our watches select by.
    """
    meta = dict(manifest["metadata"])
    meta["labels"] = {**labels, **(meta.get("labels") or {}), names.MANAGED_BY: names.FIELD_MANAGER}
    if owner.uid:
        meta["ownerReferences"] = [owner.reference]
    stamped = {**manifest, "metadata": meta}
    meta["annotations"] = {**(meta.get("annotations") or {}), WISH_ANNOTATION: wish_hash(stamped)}
    return stamped
