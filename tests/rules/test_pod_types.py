"""The types of a pod are those of the official client."""

from __future__ import annotations

import pod_types
from rule_cases import bases, unshared

from kvpp_operator.configuration import DEFAULT
from kvpp_operator.rules import judge
from kvpp_operator.rules.edits import Set, applied
from kvpp_operator.world import OFFLINE


def test_the_catalogue_is_not_stale() -> None:
    assert pod_types.FILE.read_text("utf-8") == pod_types.text(), "PYTHONPATH=tests/support python -m pod_types"


def test_words() -> None:
    containers = [
        {"name": "vllm", "env": [{"name": "A", "value": 1024}], "resources": {"requests": {"memory": "500GB"}}}
    ]
    body = applied(
        unshared(bases()["unified"]), (Set("spec.unified.podTemplate", {"spec": {"containers": containers}}),)
    )
    place = "spec.unified.podTemplate.spec.containers[0]"
    assert [(finding.message, finding.fix) for finding in judge(body, DEFAULT, OFFLINE).findings] == [
        (
            "value of a pod must be text, not a whole number; the API server refuses the pod.",
            f'set {place}.env[0].value to "1024"; in quotes, or YAML reads something else',
        ),
        (
            "memory of a pod must be a quantity, not '500GB'; the API server refuses the pod.",
            f"set {place}.resources.requests.memory to 500G",
        ),
    ]
