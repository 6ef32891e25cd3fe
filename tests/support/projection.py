"""A live object as our field manager sees it: only the fields that `managedFields` says we own."""

from __future__ import annotations

import json
from typing import Any


def projected(live: dict[str, Any], manager: str = "kvpp-operator") -> dict[str, Any]:
    """The live object cut down to what `manager` applied (FieldsV1 of the entry without a subresource)."""
    [entry] = [e for e in live["metadata"]["managedFields"] if e["manager"] == manager and "subresource" not in e]
    cut = project(live, entry["fieldsV1"])
    cut["metadata"] |= {"name": live["metadata"]["name"], "namespace": live["metadata"]["namespace"]}
    return {"apiVersion": live["apiVersion"], "kind": live["kind"], **cut}


def project(value: Any, fields: dict[str, Any]) -> Any:
    """`f:name` a field, `k:{...}` an item by key, `v:...` a value of a set, `.` the thing itself."""
    below = {key: sub for key, sub in fields.items() if key != "."}
    if not below:
        return value
    if isinstance(value, dict):
        return {key[2:]: project(value[key[2:]], sub) for key, sub in below.items() if key[2:] in value}
    items = []
    for item in value:
        for key, sub in below.items():
            if key.startswith("k:"):
                wanted = json.loads(key[2:])
                if all(item.get(name) == part for name, part in wanted.items()):
                    items.append(project(item, sub))
            elif key.startswith("v:") and item == json.loads(key[2:]):
                items.append(item)
    return items


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two JSON trees differ, a line each."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [
            line
            for key in sorted({*left, *right})
            for line in differences(left.get(key), right.get(key), f"{path}.{key}")
        ]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            line for i, pair in enumerate(zip(left, right, strict=True)) for line in differences(*pair, f"{path}[{i}]")
        ]
    return [] if left == right else [f"{path}: {left!r} != {right!r}"]
