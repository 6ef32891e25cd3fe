"""Whether an object is as we wished, although the server has filled in and written otherwise what we did not care about.

It answers what a server-side apply would change without asking the server. Nothing in here reads or writes.
"""

from __future__ import annotations

from typing import Any

from kvpp_operator.manifest import Manifest
from kvpp_operator.quantity import quantity


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


def _same_quantity(wish: Any, live: Any) -> bool:
    value = quantity(wish)
    return wish == live if value is None else value == quantity(live)
