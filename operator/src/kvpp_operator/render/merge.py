"""podTemplate over ours: maps by key, lists by their documented key, everything else replaced.

The keys are those of Kubernetes' own strategic merge, so that what users know from patches holds here (docs/api.md shows the
table). What may not be overridden is refused by rules POD; nothing is filtered here.
"""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import normpath
from typing import Any

from kvpp_operator.render.quantities import canonical

LIST_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "tolerations": ("key", "operator", "value", "effect"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
}
"""List → the keys that say which item is which. A list not named here is replaced as a whole."""

DEFAULTS = {"protocol": "TCP"}

HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
"""Of a probe or a lifecycle hook; one at a time."""


def merge_pod(template: dict[str, Any], overrides: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """`overrides`: `{metadata: {labels, annotations}, spec}` fragments, the general first. Ours stays where nobody speaks."""
    for override in overrides:
        labels_and_annotations = {key: value for key, value in override.get("metadata", {}).items() if value}
        fragment: dict[str, Any] = {"metadata": labels_and_annotations, "spec": override.get("spec")}
        template = merge(template, {key: value for key, value in fragment.items() if value})
    merged: dict[str, Any] = canonical(template)
    return merged


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if value is None:
            merged.pop(key, None)  # an explicit null takes ours away
        elif isinstance(value, dict):
            inside = below if isinstance(below, dict) else {}
            merged[key] = replace_union(key, merge(inside, value), value)
        elif isinstance(value, list) and key in LIST_KEYS:
            merged[key] = merge_lists(key, below if isinstance(below, list) else [], value)
        else:
            merged[key] = value
    return merged


def merge_lists(name: str, under: list[Any], over: list[Any]) -> list[Any]:
    """Items with the same key are merged in their place, new ones appended; a key never stands twice."""
    merged: dict[Any, Any] = {identity_of(name, item): item for item in under}
    for item in over:
        identity = identity_of(name, item)
        below = merged.get(identity, {})
        if isinstance(below, dict) and isinstance(item, dict):
            merged[identity] = replace_union(name, merge(below, item), item)
        else:
            merged[identity] = item
    return list(merged.values())


def identity_of(name: str, item: Any) -> Any:
    if not isinstance(item, dict):
        return repr(item)
    return tuple(repr(key_value(key, item)) for key in LIST_KEYS[name])


def key_value(key: str, item: dict[str, Any]) -> Any:
    value = item.get(key, DEFAULTS.get(key))
    # `/dev/shm/` is mounted where `/dev/shm` is; the server compares texts and would take both.
    return normpath(value) if key == "mountPath" and isinstance(value, str) and value else value


def replace_union(name: str, merged: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Of alternatives only the user's stays: an EnvVar's value or valueFrom, a volume's one source, a probe's one handler."""
    if name == "env" and {"value", "valueFrom"} & over.keys():
        return {key: item for key, item in merged.items() if key not in ("value", "valueFrom") or key in over}
    if name == "volumes" and over.keys() - {"name"}:
        return {key: item for key, item in merged.items() if key == "name" or key in over}
    if (name.endswith("Probe") or name in ("preStop", "postStart")) and set(HANDLERS) & over.keys():
        return {key: item for key, item in merged.items() if key not in HANDLERS or key in over}
    return merged
