"""podTemplate over ours: maps by key, lists by their documented key, everything else replaced.

The keys are those of Kubernetes' own strategic merge, so that what users know from patches holds here (docs/api.md shows the
table). What may not be overridden is refused by rules POD; nothing is filtered here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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

VOLUME_NAME = "name"


def merge_pod(template: dict[str, Any], overrides: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """`overrides`: `{metadata: {labels, annotations}, spec}` fragments, the general first. Ours stays where nobody speaks."""
    for override in overrides:
        labels_and_annotations = {key: value for key, value in override.get("metadata", {}).items() if value}
        fragment: dict[str, Any] = {"metadata": labels_and_annotations, "spec": override.get("spec")}
        template = merge(template, {key: value for key, value in fragment.items() if value})
    return template


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if value is None:
            merged.pop(key, None)  # an explicit null takes ours away: how a default affinity is removed
        elif isinstance(below, dict) and isinstance(value, dict):
            merged[key] = replace_union(key, merge(below, value), value)
        elif isinstance(below, list) and isinstance(value, list) and key in LIST_KEYS:
            merged[key] = merge_lists(key, below, value)
        else:
            merged[key] = value
    return merged


def merge_lists(name: str, under: list[Any], over: list[Any]) -> list[Any]:
    """Items with the same key are merged in their place, new ones appended; a key never stands twice."""
    merged: dict[Any, Any] = {}
    for item in [*under, *over]:
        identity = identity_of(name, item)
        below = merged.get(identity)
        if isinstance(below, dict) and isinstance(item, dict):
            merged[identity] = replace_union(name, merge(below, item), item)
        else:
            merged[identity] = item
    return list(merged.values())


def identity_of(name: str, item: Any) -> Any:
    if not isinstance(item, dict):
        return repr(item)
    return tuple(repr(item.get(key, DEFAULTS.get(key))) for key in LIST_KEYS[name])


HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")


def replace_union(name: str, merged: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Of alternatives only the user's stays: an EnvVar's value or valueFrom, a volume's one source, a probe's one handler."""
    if name == "env" and {"value", "valueFrom"} & over.keys():
        return {key: item for key, item in merged.items() if key not in ("value", "valueFrom") or key in over}
    if name == "volumes" and over.keys() - {VOLUME_NAME}:
        return {key: item for key, item in merged.items() if key == VOLUME_NAME or key in over}
    if name.endswith("Probe") and set(HANDLERS) & over.keys():
        return {key: item for key, item in merged.items() if key not in HANDLERS or key in over}
    return merged
