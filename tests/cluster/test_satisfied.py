"""`satisfied` against what a real API server makes of a wish: true exactly where an apply would change nothing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from kvpp_operator.cluster.client import Cluster, Conflict, Patch
from kvpp_operator.cluster.satisfied import satisfied
from kvpp_operator.manifest import Manifest, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.cluster

LABELS = {"app": "engine"}
CONTAINER: Manifest = {
    "name": "vllm",
    "image": "registry.example.com/vllm-ascend:v0.30.0rc2",
    "args": ["serve", "/model", "--additional-config", '{"enable_kvpp": true}'],
    "env": [
        {"name": "EMPTY", "value": ""},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "api", "key": "token", "optional": False}}},
        {"name": "UNICODE", "value": "模型 🚀"},
    ],
    "ports": [{"containerPort": 8000, "name": "http"}, {"containerPort": 22000, "protocol": "UDP"}],
    "resources": {
        "limits": {"huawei.com/Ascend910": 8, "memory": "1048576Mi", "cpu": "1000m"},
        "requests": {"cpu": 0.5},
    },
    "volumeMounts": [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "model", "mountPath": "/model", "readOnly": False},
    ],
    "startupProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 360},
    "securityContext": {"privileged": False, "capabilities": {"add": ["IPC_LOCK"], "drop": []}},
    "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
    "tty": False,
    "terminationMessagePolicy": "FallbackToLogsOnError",
}
POD: Manifest = {
    "containers": [CONTAINER],
    "initContainers": [{"name": "fetch", "image": "x", "command": ["fetch"]}],
    "enableServiceLinks": False,
    "automountServiceAccountToken": False,
    "hostNetwork": False,
    "terminationGracePeriodSeconds": 120,
    "nodeSelector": {"accelerator": "npu"},
    "tolerations": [{"key": "npu", "operator": "Exists", "effect": "NoSchedule"}],
    "imagePullSecrets": [{"name": "registry"}],
    "securityContext": {},
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}
            ]
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": LABELS},
        }
    ],
    "volumes": [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "65536Mi"}},
        {"name": "model", "persistentVolumeClaim": {"claimName": "weights", "readOnly": False}},
        {"name": "driver", "hostPath": {"path": "/usr/local/Ascend/driver"}},
        {"name": "config", "configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
        {
            "name": "token",
            "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "pool"}}]},
        },
    ],
}


def of(api_version: str, kind: str, **content: Any) -> Manifest:
    meta = {"name": "wish", "labels": LABELS, "annotations": {}}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **content}


WISHES: dict[str, Manifest] = {
    "ServiceAccount": of("v1", "ServiceAccount", automountServiceAccountToken=False),
    "ConfigMap": of("v1", "ConfigMap", data={"a": "x\ny\n", "b": "值"}, binaryData={}),
    "Service": of(
        "v1",
        "Service",
        spec={
            "selector": LABELS,
            "ports": [{"name": "http", "port": 8000, "targetPort": "http"}, {"name": "dp", "port": 9}],
        }
        | {"publishNotReadyAddresses": False},
    ),
    "headless Service": of(
        "v1",
        "Service",
        spec={"clusterIP": "None", "selector": LABELS, "publishNotReadyAddresses": True, "ports": []},
    ),
    "ControllerRevision": of("apps/v1", "ControllerRevision", revision=1, data={"engines": [{"a": None, "b": [1]}]}),
    "Role": of(
        "rbac.authorization.k8s.io/v1",
        "Role",
        rules=[{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "watch"]}],
    ),
    "RoleBinding": of(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        roleRef={"kind": "Role", "name": "wish", "apiGroup": "rbac.authorization.k8s.io"},
        subjects=[{"kind": "ServiceAccount", "name": "wish"}],
    ),
    "PodDisruptionBudget": of(
        "policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "selector": {"matchLabels": LABELS}}
    ),
    "NetworkPolicy": of(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        spec={
            "podSelector": {"matchLabels": LABELS},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{"podSelector": {"matchLabels": LABELS}}, {"namespaceSelector": {}}],
                    "ports": [{"port": 22000, "endPort": 22007}, {"port": "http", "protocol": "UDP"}],
                }
            ],
        },
    ),
    "Deployment": of(
        "apps/v1",
        "Deployment",
        spec={
            "replicas": 0,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS, "annotations": {}}, "spec": POD},
        },
    ),
}


def placed(wish: Manifest, namespace: str) -> Manifest:
    return {**wish, "metadata": {**wish["metadata"], "namespace": namespace}}


@pytest.mark.parametrize("case", WISHES)
async def test_what_the_server_makes_of_a_wish_satisfies_it(cluster: Cluster, namespace: str, case: str) -> None:
    """Else every reconcile would write, for ever."""
    wish = placed(WISHES[case], namespace)
    await cluster.apply(wish)
    live = await cluster.get(key_of(wish))
    assert live is not None
    assert satisfied(wish, live)


def at(*path: Any, value: Any) -> Callable[[Manifest], None]:
    def edit(manifest: Manifest) -> None:
        node: Any = manifest
        for step in path[:-1]:
            node = node[step]
        if value is None:
            del node[path[-1]]
        else:
            node[path[-1]] = value

    return edit


TEMPLATE = ("spec", "template", "spec")
ENGINE = (*TEMPLATE, "containers", 0)
EDITS: dict[str, tuple[str, Callable[[Manifest], None]]] = {
    "an argument": ("Deployment", at(*ENGINE, "args", 1, value="/other")),
    "arguments cut": ("Deployment", at(*ENGINE, "args", value=["serve"])),
    "an empty value filled": ("Deployment", at(*ENGINE, "env", 0, "value", value="x")),
    "a variable removed": ("Deployment", at(*ENGINE, "env", 3, value=None)),
    "devices": ("Deployment", at(*ENGINE, "resources", "limits", "huawei.com/Ascend910", value="16")),
    "a request": ("Deployment", at(*ENGINE, "resources", "requests", "cpu", value="750m")),
    "a mount": ("Deployment", at(*ENGINE, "volumeMounts", 1, "readOnly", value=True)),
    "a port": ("Deployment", at(*ENGINE, "ports", 1, value=None)),
    "privileged": ("Deployment", at(*ENGINE, "securityContext", "privileged", value=True)),
    "privileged unsaid": ("Deployment", at(*ENGINE, "securityContext", "privileged", value=None)),
    "a capability": ("Deployment", at(*ENGINE, "securityContext", "capabilities", "add", value=["SYS_ADMIN"])),
    "host network": ("Deployment", at(*TEMPLATE, "hostNetwork", value=True)),
    "service links": ("Deployment", at(*TEMPLATE, "enableServiceLinks", value=True)),
    "a token mounted": ("Deployment", at(*TEMPLATE, "automountServiceAccountToken", value=None)),
    "a node label more": ("Deployment", at(*TEMPLATE, "nodeSelector", "zone", value="1")),
    "a toleration more": ("Deployment", at(*TEMPLATE, "tolerations", value=[{"operator": "Exists"}])),
    "shared memory": ("Deployment", at(*TEMPLATE, "volumes", 0, "emptyDir", "sizeLimit", value="1Gi")),
    "replicas": ("Deployment", at("spec", "replicas", value=2)),
    "a selector more": ("Service", at("spec", "selector", "role", value="x")),
    "a target port": ("Service", at("spec", "ports", 0, "targetPort", value=9000)),
    "data": ("ConfigMap", at("data", "a", value="z")),
    "data removed": ("ConfigMap", at("data", "a", value=None)),
    "a verb": ("Role", at("rules", 0, "verbs", value=["*"])),
    "a rule": ("Role", at("rules", value=[{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])),
    "a subject": ("RoleBinding", at("subjects", value=[{"kind": "ServiceAccount", "name": "other"}])),
    "a peer widened": ("NetworkPolicy", at("spec", "ingress", 0, "from", 0, "namespaceSelector", value={})),
    "a port range": ("NetworkPolicy", at("spec", "ingress", 0, "ports", 0, "endPort", value=30000)),
    "pods selected": ("NetworkPolicy", at("spec", "podSelector", "matchLabels", "role", value="x")),
    "rules dropped": ("NetworkPolicy", at("spec", "ingress", value=None)),
    "a label": ("ConfigMap", at("metadata", "labels", "app", value="other")),
}


async def hand_edit(cluster: Cluster, live: Manifest, edit: Callable[[Manifest], None]) -> Manifest:
    """Edit as `kubectl edit` does; again, if one of the cluster's controllers has written meanwhile."""
    while True:
        edited = copy.deepcopy(live)
        edit(edited)
        replaced = await cluster.replace(edited)
        if not isinstance(replaced, Conflict):
            return replaced
        found = await cluster.get(replaced.key)
        assert found is not None
        live = found


@pytest.mark.parametrize("case", EDITS)
async def test_a_hand_edit_is_seen_and_an_apply_undoes_it(cluster: Cluster, namespace: str, case: str) -> None:
    name, edit = EDITS[case]
    wish = placed(WISHES[name], namespace)
    live = await hand_edit(cluster, await cluster.apply(wish), edit)
    assert not satisfied(wish, live)
    assert satisfied(wish, await cluster.apply(wish))


ADDITIONS: dict[str, tuple[str, Manifest]] = {
    "a sidecar": ("Deployment", {"spec": {"template": {"spec": {"containers": [{"name": "mesh", "image": "x"}]}}}}),
    "a label": ("ConfigMap", {"metadata": {"labels": {"team": "x"}}}),
    "an annotation": ("Service", {"metadata": {"annotations": {"note": "x"}}}),
    "a key": ("ConfigMap", {"data": {"c": "x"}}),
    "a service port": ("Service", {"spec": {"ports": [{"name": "extra", "port": 10}]}}),
}


@pytest.mark.parametrize("case", ADDITIONS)
async def test_what_an_apply_would_not_remove_is_no_reason_to_write(
    cluster: Cluster, namespace: str, case: str
) -> None:
    name, addition = ADDITIONS[case]
    wish = placed(WISHES[name], namespace)
    await cluster.apply(wish)
    live = await cluster.patch(key_of(wish), addition, form=Patch.STRATEGIC, manager="somebody")
    assert satisfied(wish, live)
    again = await cluster.apply(wish)
    assert content(again) == content(live)


def content(manifest: Manifest) -> Manifest:
    """Leave out what the cluster's controllers write in their time: status, and the Deployment controller's count."""
    meta = {name: manifest["metadata"].get(name) for name in ("labels", "generation")}
    notes = manifest["metadata"].get("annotations", {})
    meta["annotations"] = {
        name: note for name, note in notes.items() if not name.startswith("deployment.kubernetes.io/")
    }
    return {name: value for name, value in manifest.items() if name != "status"} | {"metadata": meta}
