"""`KVPPPortLedger`: the cluster-scoped object that holds the ledger.

One object named `default`, changed by compare-and-swap only. The list's key is the first port, so the API server
itself refuses two claims that start at one port. An entry is atomic: managedFields then names a claim in some 30 bytes
instead of listing its fields, and a full ledger stays far below etcd's limit (`tests/ledger/test_crd.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from kvpp_operator.api.base import Model, extension
from kvpp_operator.api.v1alpha1 import API_VERSION, GROUP, VERSION

KIND = "KVPPPortLedger"
PLURAL = "kvppportledgers"
NAME = "default"

MAX_CLAIMS = 8192
"""More than the port space can hold: an engine takes 21 ports or more, in two claims."""

Port = Annotated[int, Field(ge=1, le=65535)]


class ClaimEntry(Model):
    """One block of ports and who owns it on every host."""

    first: Annotated[Port, Field(description="First port of the block.")]
    last: Annotated[Port, Field(description="Last port of the block, included.")]
    purpose: Annotated[str, Field(min_length=1, max_length=32, description="`kv` or `host`.")]
    namespace: Annotated[str, Field(max_length=63, description="Namespace of the deployment.")]
    name: Annotated[str, Field(min_length=1, max_length=253, description="Name of the deployment.")]
    uid: Annotated[str, Field(max_length=64, description="UID of the deployment.")]
    role: Annotated[str, Field(min_length=1, max_length=32, description="Role of the engine, or a service's name.")]
    engine: Annotated[int, Field(ge=0, le=65535, description="Index of the engine in its role.")]
    revision: Annotated[str, Field(max_length=64, description="Revision of the engine.")]


class Summary(Model):
    """What `kubectl get` shows; derived from the claims."""

    claims: Annotated[int, Field(ge=0, description="Number of claims.")] = 0
    ports: Annotated[int, Field(ge=0, description="Ports in them.")] = 0


class LedgerSpec(Model):
    summary: Annotated[Summary, Field(description="What kubectl shows.")] = Summary()
    claims: Annotated[tuple[ClaimEntry, ...], Field(max_length=MAX_CLAIMS, strict=False)] = ()


class LedgerObject(Model):
    """The object as the API server keeps it, without its metadata."""

    api_version: Literal["serving.kvpp.io/v1alpha1"] = "serving.kvpp.io/v1alpha1"
    kind: Literal["KVPPPortLedger"] = "KVPPPortLedger"
    spec: LedgerSpec = LedgerSpec()


def ledger_object(spec: dict[str, Any], resource_version: str = "") -> dict[str, Any]:
    """Make the manifest of a dumped ledger. With a resourceVersion the API server takes it only on top of that one."""
    version = {"resourceVersion": resource_version} if resource_version else {}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": NAME, **version}, "spec": spec}


def ledger_crd() -> dict[str, Any]:
    """Make the CustomResourceDefinition, its schema from the model above."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["kvppports"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {"name": "Claims", "type": "integer", "jsonPath": ".spec.summary.claims"},
                        {"name": "Ports", "type": "integer", "jsonPath": ".spec.summary.ports"},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {"openAPIV3Schema": _root_schema()},
                }
            ],
        },
    }


def _root_schema() -> dict[str, Any]:
    entry = _schema(ClaimEntry) | extension(
        map_type="atomic",
        validations=[{"rule": "self.first <= self.last", "message": "a block ends where it begins, or above"}],
    )
    claims = {
        "type": "array",
        "description": "Every claim, by its first port.",
        "maxItems": MAX_CLAIMS,
        "items": entry,
        **extension(list_type="map", list_map_keys=["first"]),
    }
    return {
        "type": "object",
        "description": "Which engine owns which ports of the hosts. Written by the operator.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "enum": [NAME]}}},
            "spec": {"type": "object", "properties": {"summary": _schema(Summary), "claims": claims}},
        },
    }


def _schema(model: type[Model]) -> dict[str, Any]:
    """Take a flat model's JSON schema, whose fields have no references or unions, to its structural form."""
    plain = model.model_json_schema(by_alias=True)
    fields = {
        name: {key: value for key, value in field.items() if key not in ("title", "default")}
        for name, field in plain["properties"].items()
    }
    required = {"required": plain["required"]} if "required" in plain else {}
    return {"type": "object", "description": plain["description"], **required, "properties": fields}
