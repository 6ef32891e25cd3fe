"""Specs for tests: read from examples, or the smallest that is accepted, changed at paths."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from kvpp_operator.configuration import Configuration
from kvpp_operator.pipeline import Planned, plan_one
from kvpp_operator.plan.model import Plan

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

UNIFIED: dict[str, Any] = {
    "model": {"profile": "GLM-5.2", "source": {"hostPath": {"path": "/mnt/models/GLM-5.2"}}, "quantization": "ascend"},
    "engine": {"version": "0.30.0rc2"},
    "accelerator": {"chip": "950DT"},
    "unified": {"parallelism": {"tensor": 8, "expert": True}},
}
DISAGGREGATED: dict[str, Any] = {
    **{key: value for key, value in UNIFIED.items() if key != "unified"},
    "prefill": {"parallelism": {"tensor": 8, "expert": True}},
    "decode": {"parallelism": {"data": 8, "expert": True}},
}


def deployment(spec: dict[str, Any], name: str = "demo", **changes: Any) -> dict[str, Any]:
    """A KVPPDeployment; `changes` are dotted paths below spec with `__` for a dot: `prefill__replicas=2`."""
    body: dict[str, Any] = {
        "apiVersion": "serving.kvpp.io/v1alpha1",
        "kind": "KVPPDeployment",
        "metadata": {"name": name, "namespace": "default", "uid": "u-1", "generation": 1},
        "spec": copy.deepcopy(spec),
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = body["spec"]
        for key in parents:
            node = node.setdefault(key, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return body


def read(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def planned(body: dict[str, Any], configuration: Configuration | None = None) -> Plan:
    """The plan of a spec that must be accepted."""
    result: Planned = plan_one(body, configuration or Configuration())
    assert result.plan is not None, [str(finding) for finding in result.judgement.findings]
    return result.plan
