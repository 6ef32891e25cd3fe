"""Mistakes of form: all at once, in the user's words, and never in the way of other findings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rule_cases import bases, unshared

from kvpp_operator.configuration import DEFAULT
from kvpp_operator.rules import judge
from kvpp_operator.rules.edits import Edit, Remove, Set, applied
from kvpp_operator.rules.schema import parse
from kvpp_operator.world import OFFLINE


def document(*edits: Edit, base: str = "unified") -> Any:
    return applied(copy.deepcopy(unshared(bases()[base])), edits)


def found(body: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in judge(body, DEFAULT, OFFLINE).findings]


def test_all_mistakes_at_once() -> None:
    body = document(
        Set("spec.unified.parallelism.tensor", "eight"),
        Set("spec.unified.replicas", -1),
        Set("spec.unified.grafMode", "Eager"),
        Set("spec.accelerator.chip", "310P"),
        Remove("spec.engine.version"),
    )
    assert found(body) == [
        ("SCHEMA005", "spec.accelerator.chip"),
        ("SCHEMA003", "spec.engine.version"),
        ("SCHEMA002", "spec.unified.grafMode"),
        ("SCHEMA001", "spec.unified.parallelism.tensor"),
        ("SCHEMA004", "spec.unified.replicas"),
    ]


def test_a_bad_field_does_not_hide_the_rules() -> None:
    body = document(
        Set("spec.accelerator.chip", "310P"),
        Set("spec.prefill.graphMode", "Full"),
        Set("spec.decode.parallelism.pipeline", 2),
        base="pd",
    )
    assert found(body) == [
        ("SCHEMA005", "spec.accelerator.chip"),
        ("PAR006", "spec.decode.parallelism.pipeline"),
        ("GRAPH001", "spec.prefill.graphMode"),
    ]


def test_rules_about_a_bad_field_wait() -> None:
    """Without its size the group counts as one: saying so would be wrong."""
    assert found(document(Set("spec.unified.parallelism.tensor", "eight"))) == [
        ("SCHEMA001", "spec.unified.parallelism.tensor")
    ]


def test_an_unknown_version_field_does_not_bring_gates() -> None:
    """With no version known, only what every version refuses counts."""
    body = document(Remove("spec.engine.version"), Set("spec.unified.graphMode", "Piecewise"))
    assert found(body) == [("SCHEMA003", "spec.engine.version")]


@pytest.mark.parametrize(
    "nothing",
    [
        "spec.unified.parallelism",
        "spec.unified.scheduler",
        "spec.networking",
        "spec.kvpp",
        "spec.unified.env",
        "spec.decode",
    ],
)
def test_null_is_absent(nothing: str) -> None:
    """The API server drops null from fields that can't be null, before it fills in defaults."""
    body = document(Set(nothing, None))
    if nothing == "spec.unified.parallelism":
        assert found(body) == [("PAR001", "spec.unified.parallelism.tensor")]
    else:
        assert found(body) == []


def test_null_for_a_required_field_is_missing() -> None:
    assert found(document(Set("spec.engine.version", None))) == [("SCHEMA003", "spec.engine.version")]


def test_number_keys_are_text() -> None:
    """`kubectl` turns them into text as well."""
    deployment, findings = parse(
        document(Set("spec.unified.podTemplate", {"metadata": {"annotations": {"a": "b", 1: "c"}}}))
    )
    assert findings == ()
    assert deployment is not None and deployment.spec.unified is not None
    assert deployment.spec.unified.pod_template.metadata.annotations == {"a": "b", "1": "c"}


def test_preserved_objects_stay_byte_true() -> None:
    kept = {"a": None, "b": "true", "c": {"d": [1, 1.5, {"e": None}]}, "f": "0644"}
    deployment, _ = parse(document(Set("spec.unified.additionalConfig", kept)))
    assert deployment is not None and deployment.spec.unified is not None
    assert deployment.spec.unified.additional_config == kept


@pytest.mark.parametrize("body", [None, 7, "text", [], [{}], {}, {"spec": None}, {"spec": []}, True])
def test_no_deployment_at_all(body: Any) -> None:
    judgement = judge(body, DEFAULT, OFFLINE)
    assert judgement.deployment is None and judgement.findings and not judgement.accepted


def test_live_object_parses() -> None:
    """What the API server returns carries more than users write."""
    body = document(
        Set("metadata.managedFields", [{"manager": "kubectl"}]),
        Set("metadata.generation", 3),
        Set("metadata.uid", "u-1"),
        Set("status", {"conditions": []}),
    )
    deployment, findings = parse(body)
    assert findings == () and deployment is not None
    assert (deployment.metadata.generation, deployment.metadata.uid) == (3, "u-1")


def test_words() -> None:
    """Path, value, bound, way out; nothing of the machinery."""
    (finding,) = judge(document(Set("spec.unified.parallelism.tensr", 4)), DEFAULT, OFFLINE).findings
    assert str(finding) == (
        "spec.unified.parallelism.tensr: spec.unified.parallelism has no field tensr; the closest is tensor. "
        "Fix: remove spec.unified.parallelism.tensr. [SCHEMA002]"
    )
    (finding,) = judge(document(Set("spec.accelerator.chip", "Ascend310P")), DEFAULT, OFFLINE).findings
    assert finding.message == "chip must be one of A2, A3, 950DT, 950PR; 310P has no KVPP."


def test_secrets_are_not_repeated() -> None:
    """Findings go into status, events and logs."""
    secret = "hush-hush"
    body = document(
        Set("spec.unified.extraArgs", ["--api-key", secret, f"--hf-token={secret}", f"--api-kie={secret}", "--seed=1"]),
        Set(
            "spec.unified.env", [{"name": "VLLM_API_KEY", "value": secret}, {"name": "WANDB_API_KEY", "value": secret}]
        ),
        Set("spec.unified.podTemplate", {"spec": {"containers": [{"name": "vllm", "args": ["--api-key", secret]}]}}),
    )
    findings = judge(body, DEFAULT, OFFLINE).findings
    assert len(findings) == 6
    assert not [str(finding) for finding in findings if secret in str(finding) or secret in str(finding.value)]


@pytest.mark.parametrize(
    ("path", "written", "meant"),
    [
        ("spec.unified.sharedMemory", "32GB", "32G"),
        ("spec.unified.sharedMemory", "32gi", "32Gi"),
        ("spec.unified.sharedMemory", "1.5 GiB", "1.5Gi"),
        ("spec.unified.sharedMemory", "512mb", "512M"),
        ("spec.unified.sharedMemory", "10KB", "10k"),
        ("spec.unified.startupTimeout", "45 min", "45m"),
        ("spec.unified.startupTimeout", "1d 2h", "26h"),
        ("spec.unified.shutdownTimeout", "300", "300s"),
        ("spec.unified.shutdownTimeout", "2 minutes", "2m"),
        ("spec.engine.version", "v0.30.0rc2", "0.30.0rc2"),
        ("spec.engine.version", "v0.30.0rc2-a3-openeuler", "0.30.0rc2"),
    ],
)
def test_text_of_another_form_is_read(path: str, written: str, meant: str) -> None:
    """The fix is the same amount in the form that is wanted, not the field's absence."""
    (finding,) = judge(document(Set(path, written)), DEFAULT, OFFLINE).findings
    assert finding.rule == "SCHEMA006"
    assert finding.fix.startswith(f"set {path} to {meant};")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("910B", "A2"),
        ("Ascend910B4", "A2"),
        ("910C", "A3"),
        ("Ascend910_9391", "A3"),
        ("a3", "A3"),
        ("A5", "950DT"),
        ("950", "950DT"),
    ],
)
def test_a_chip_by_another_name_is_known(written: str, meant: str) -> None:
    """Another chip would be another image, other sizes and another environment."""
    (finding,) = judge(document(Set("spec.accelerator.chip", written)), DEFAULT, OFFLINE).findings
    assert (finding.rule, finding.fix) == ("SCHEMA005", f"set spec.accelerator.chip to {meant}")


@pytest.mark.parametrize("unreadable", ["lots", "3 apples", "Gi", "-5Gi", "5Ti5", "soon", "5y", "\n"])
def test_what_cannot_be_read_is_left_out(unreadable: str) -> None:
    for path in ("spec.unified.sharedMemory", "spec.unified.startupTimeout"):
        (finding,) = judge(document(Set(path, unreadable)), DEFAULT, OFFLINE).findings
        assert finding.edits == (Remove(path),)


def test_one_line() -> None:
    (finding,) = judge(document(Set("spec.imagePullSecrets", [{"name": "mine\n"}])), DEFAULT, OFFLINE).findings
    assert finding.message == "name does not have the form of one line without control characters."


@pytest.mark.parametrize("field", ["servedName", "quantization"])
def test_a_name_that_would_be_read_as_a_flag(field: str) -> None:
    (finding,) = judge(document(Set(f"spec.model.{field}", "--host")), DEFAULT, OFFLINE).findings
    assert (finding.rule, finding.path) == ("SCHEMA006", f"spec.model.{field}")


@pytest.mark.parametrize(
    ("metadata", "rule", "path", "fix"),
    [
        ({"labels": {"tier": 1}}, "SCHEMA001", "metadata.labels.tier", 'set metadata.labels.tier to "1"'),
        ({"annotations": {"version": True}}, "SCHEMA001", "metadata.annotations.version", 'set metadata.annotations.version to "true"'),
        ({"labels": {"a": "b c"}}, "SCHEMA006", "metadata.labels.a", "remove metadata.labels.a"),
        ({"labels": {"bad key!": "b"}}, "SCHEMA006", 'metadata.labels["bad key!"]', 'remove metadata.labels["bad key!"]'),
        ({"labels": ["a"]}, "SCHEMA001", "metadata.labels", "remove metadata.labels"),
        ({"lables": {"a": "b"}}, "SCHEMA002", "metadata.lables", "set metadata.labels to"),
    ],
)  # fmt: skip
def test_metadata_as_an_api_server_takes_it(metadata: dict[str, Any], rule: str, path: str, fix: str) -> None:
    """YAML's numbers in labels are the usual mistake; kubectl would be the first to say so."""
    body = document(*(Set(f"metadata.{name}", value) for name, value in metadata.items()))
    (finding,) = judge(body, DEFAULT, OFFLINE).findings
    assert (finding.rule, finding.path) == (rule, path)
    assert finding.fix.startswith(fix)


def test_metadata_of_tomorrow_is_no_mistake() -> None:
    """What a newer API server writes must not turn every deployment that runs into a refused one."""
    assert found(document(Set("metadata.storageVersionOfTomorrow", "v9"))) == []


def test_version_as_a_number() -> None:
    """`version: 0.30` is a number to YAML."""
    (finding,) = judge(document(Set("spec.engine.version", 0.30)), DEFAULT, OFFLINE).findings
    assert (finding.message, finding.rule) == ("version must be text, not a number.", "SCHEMA001")
    assert finding.fix == "set spec.engine.version to 0.30.0rc2; with your own value"
