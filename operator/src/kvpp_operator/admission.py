"""AdmissionReview → AdmissionReview: the same judgement as everywhere, as the API server asks for it. Pure; serving it is
somebody else's job.

Protocol: Kubernetes, "Dynamic Admission Control", admission.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvpp_operator.configuration import Configuration
from kvpp_operator.rules import judge
from kvpp_operator.rules.base import Finding
from kvpp_operator.world import OFFLINE

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
INVALID = 422
WARNING_LIMIT = 256
"""The API server cuts longer warnings, and all of them together at 4096 characters."""


def review(request_body: Mapping[str, Any], configuration: Configuration) -> dict[str, Any]:
    """Answer one AdmissionReview. A request without an object (DELETE) is allowed: what is invalid must be deletable."""
    request = request_body.get("request") or {}
    answer: dict[str, Any] = {"uid": request.get("uid", ""), "allowed": True}
    body = request.get("object")
    if body is not None and request.get("operation") in ("CREATE", "UPDATE") and not being_deleted(body):
        answer |= verdict(judge(body, configuration, OFFLINE).findings)
    return {"apiVersion": API_VERSION, "kind": KIND, "response": answer}


def being_deleted(body: Any) -> bool:
    """An update that only takes a finalizer off must pass, whatever the spec says."""
    return isinstance(body, dict) and bool((body.get("metadata") or {}).get("deletionTimestamp"))


def verdict(findings: tuple[Finding, ...]) -> dict[str, Any]:
    errors = [finding for finding in findings if finding.severity == "error"]
    warnings = [str(finding)[:WARNING_LIMIT] for finding in findings if finding.severity == "warning"]
    answer: dict[str, Any] = {"warnings": warnings} if warnings else {}
    if errors:
        answer |= {
            "allowed": False,
            "status": {
                "code": INVALID,
                "reason": "Invalid",
                "message": "\n".join(map(str, errors)),
                "details": {"causes": [cause(finding) for finding in errors]},
            },
        }
    return answer


def cause(finding: Finding) -> dict[str, str]:
    return {
        "reason": "FieldValueInvalid",
        "message": f"{finding.message} Fix: {finding.fix}. [{finding.rule}]",
        "field": finding.path,
    }
