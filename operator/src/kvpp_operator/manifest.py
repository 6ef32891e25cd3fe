"""What we wish an API object to be: its identity, its place in the order of things, and whether it is as we wished.

A manifest is a plain JSON tree with `apiVersion`, `kind` and `metadata.name`.  Nothing in here reads or writes.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from fractions import Fraction
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


def satisfied(wish: Manifest, live: Manifest) -> bool:
    """Whether a server-side apply of `wish` would change nothing in `live`.

    Maps and keyed lists may hold more than we wish, because apply would not remove it; atomic ones may not.
    Defaults that the server fills in are such additions.  Quantities are compared by value.
    """
    return all(_holds((name,), value, live.get(name)) for name, value in wish.items())


# Lists that apply merges by key, k8s.io/api/core/v1 types.go `+listMapKey`; any other list is atomic.
_LIST_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
# `ports` is keyed in a container and in a Service, and atomic in a NetworkPolicy: there a port too many is a hole.
_PORT_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("containerPort", "protocol"),
    "initContainers": ("containerPort", "protocol"),
    "spec": ("port", "protocol"),
}
_KEY_DEFAULTS = {"protocol": "TCP"}
# What apply replaces as one (`+mapType=atomic`, `+structType=atomic`, items of atomic lists) and where a name too many
# changes the meaning: another node, other pods, another namespace let in.
_CLOSED_MAPS = frozenset(
    {"nodeSelector", "selector", "labelSelector", "matchLabels", "podSelector", "namespaceSelector"}
    | {"ingress", "egress", "from", "to", "rules", "tolerations"}
)
_QUANTITY_MAPS = frozenset({"limits", "requests", "minResources"})
_QUANTITIES = frozenset({"sizeLimit", "divisor"})
# Plain Go bools with `omitempty`: the server keeps no `false`.  Pointers (`privileged`, …) do keep it.
_OMITTED_WHEN_FALSE = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "paused", "publishNotReadyAddresses", "readOnly", "stdin", "stdinOnce", "tty"}
)
# Go maps with `omitempty`.  An empty struct says something and is kept: `emptyDir: {}`, a peer's `podSelector: {}`.
_OMITTED_WHEN_EMPTY = frozenset(
    {"annotations", "binaryData", "data", "labels", "limits", "matchLabels", "metadata", "nodeSelector", "requests"}
)


def _holds(path: tuple[str, ...], wish: Any, live: Any) -> bool:
    if wish is None or wish == "" or (wish is False and path[-1] in _OMITTED_WHEN_FALSE):
        return live in (None, wish)
    if isinstance(wish, dict):
        return _holds_map(path, wish, {} if live is None and path[-1] in _OMITTED_WHEN_EMPTY else live)
    if isinstance(wish, list):
        return _holds_list(path, wish, [] if live is None else live)
    if live is not None and _is_quantity(path):
        return _same_quantity(wish, live)
    return isinstance(wish, bool) is isinstance(live, bool) and bool(wish == live)


def _holds_map(path: tuple[str, ...], wish: Manifest, live: Any) -> bool:
    if not isinstance(live, dict):
        return False
    if _is_closed(path) and any(live[name] != _KEY_DEFAULTS.get(name) for name in live.keys() - wish.keys()):
        return False
    return all(_holds((*path, name), value, live.get(name)) for name, value in wish.items())


def _holds_list(path: tuple[str, ...], wish: list[Any], live: Any) -> bool:
    if not isinstance(live, list):
        return False
    keys = merge_keys(path) if all(isinstance(item, dict) for item in (*wish, *live)) else ()
    found = {_merge_key(item, keys): item for item in live} if keys else {}
    # Keys are unique where the server merges by them; elsewhere, as in a revision's templates, the list is data.
    if len(found) < len(live) or not keys:
        return len(wish) == len(live) and all(_holds(path, *pair) for pair in zip(wish, live, strict=True))
    return all(_holds(path, item, found.get(_merge_key(item, keys))) for item in wish)


def merge_keys(path: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the fields by which apply merges the items of a list; none: the list is replaced as one."""
    if path[-1] == "ports":
        return _PORT_KEYS.get(path[-2], ()) if len(path) > 1 else ()
    return _LIST_KEYS.get(path[-1], ())


def _is_closed(path: tuple[str, ...]) -> bool:
    return path[-1] in _CLOSED_MAPS or path[-2:] in {("ingress", "ports"), ("egress", "ports")}


def _merge_key(item: Manifest, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key, _KEY_DEFAULTS.get(key)) for key in keys)


def _is_quantity(path: tuple[str, ...]) -> bool:
    return path[-1] in _QUANTITIES or (len(path) > 1 and path[-2] in _QUANTITY_MAPS)


_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES: dict[str | None, Fraction] = {
    None: Fraction(1),
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def quantity(value: Any) -> Fraction | None:
    """Value of a Kubernetes quantity (`500m`, `0.5`, `64Gi`, `1e3`, 8), or `None` if it is none."""
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix])


def _same_quantity(wish: Any, live: Any) -> bool:
    value = quantity(wish)
    return wish == live if value is None else value == quantity(live)
