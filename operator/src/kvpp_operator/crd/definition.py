"""The CustomResourceDefinition of KVPPDeployment, and of the port ledger."""

from __future__ import annotations

from typing import Any

from kvpp_operator.api import v1alpha1 as api
from kvpp_operator.api.status import Status
from kvpp_operator.crd.structural import EXTENSION, Schema, structural
from kvpp_operator.ledger.crd import ledger_crd
from kvpp_operator.manifest import Manifest
from kvpp_operator.rules import RULES

KEPT_ON_UNINSTALL = {"helm.sh/resource-policy": "keep"}
"""Deleting the CRD would delete every deployment of every user."""


def column(name: str, path: str, kind: str = "string", *, priority: int = 0, text: str = "") -> dict[str, Any]:
    shown = {"name": name, "type": kind, "jsonPath": path, **({"description": text} if text else {})}
    return {**shown, "priority": priority} if priority else shown


COLUMNS = (
    column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    column("Model", ".status.model"),
    column("Unified", ".status.roles.unified.summary", text="Unified engines, ready/wanted."),
    column("Prefill", ".status.roles.prefill.summary", text="Prefill engines, ready/wanted."),
    column("Decode", ".status.roles.decode.summary", text="Decode engines, ready/wanted."),
    column("KVPP", ".spec.kvpp.enabled", "boolean"),
    column(
        "KV Tokens",
        ".status.capacity.measured.tokens",
        "integer",
        text="Measured KV capacity of all engines that keep a cache with KVPP.",
    ),
    column("Age", ".metadata.creationTimestamp", "date"),
    column("Version", ".spec.engine.version", priority=1),
    column("Chip", ".spec.accelerator.chip", priority=1),
    column("KV Ports", ".status.engines[*].kvPort", priority=1),
)


def definitions() -> list[Manifest]:
    return [deployment_definition(), ledger_crd()]


def deployment_definition() -> Manifest:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{api.PLURAL}.{api.GROUP}", "annotations": dict(KEPT_ON_UNINSTALL)},
        "spec": {
            "group": api.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": api.KIND,
                "listKind": f"{api.KIND}List",
                "plural": api.PLURAL,
                "singular": api.KIND.lower(),
                "shortNames": ["kvpp"],
                "categories": ["kvpp"],
            },
            "versions": [
                {
                    "name": api.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(COLUMNS),
                    "schema": {"openAPIV3Schema": root_schema()},
                }
            ],
        },
    }


def root_schema() -> Schema:
    return {
        "type": "object",
        "description": "One model served by vLLM Ascend with KV pipeline parallelism.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 63, "pattern": NAME_PATTERN}},
            },
            "spec": spec_schema(),
            "status": structural(Status.model_json_schema(by_alias=True)),
        },
    }


NAME_PATTERN = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
"""A DNS label: names of Services and label values are made from it."""


def spec_schema() -> Schema:
    schema = structural(api.Spec.model_json_schema(by_alias=True))
    schema[f"{EXTENSION}validations"] = [
        {"rule": cel.expression, "message": f"{rule.message} ({rule.id})", "fieldPath": cel.field_path}
        for rule in RULES
        for cel in rule.cel
    ]
    return schema
