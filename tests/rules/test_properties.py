"""Whatever a document is: judging ends, says something that can be printed, and its fixes can be applied."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rule_cases import bases, cases, unshared

from kvpp_operator.configuration import DEFAULT
from kvpp_operator.rules import judge
from kvpp_operator.rules.edits import applied
from kvpp_operator.rules.schema import parse
from kvpp_operator.world import OFFLINE

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=12)
    | st.sampled_from(
        ["GLM-5.2", "C8", "MTP", "latest", "--tensor-parallel-size", "64Gi", "true", "29999", "22000-22999"]
    )
    | st.dates()
    | st.datetimes()
    | st.binary(max_size=4)
)
WORDS = st.sampled_from(
    [
        *(
            "--seed",
            "1",
            "--seed=1",
            "-tp",
            "-tp4",
            "--tensor_parallel_size",
            "--no-enable-prefix-caching",
            "--compilation-config.a.b",
        ),
        *(
            "--kv-transfer-config",
            '{"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": [1, {}]}}',
            "--",
        ),
        *(
            "-O3",
            "-0.5",
            "--config",
            "a.yaml",
            "--attention_config.indexer_kv_dtype=fp8",
            "--hf-overrides",
            "{",
            "--block-size",
            "-",
            "",
        ),
        *(
            "--speculative-config",
            '{"method": "mtp"}',
            "--kv-events-config",
            "[]",
            "--spec-method",
            "ngram",
            "--api-key",
            "--help",
        ),
    ]
)
ARGUMENTS = st.lists(WORDS | st.text(max_size=6), max_size=6)
KEYS = (
    st.text(max_size=8)
    | st.integers()
    | st.sampled_from(["name", "spec", "tensor", "enabled", "enable_kvpp", "containers"])
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
DOCUMENTS = [unshared(base) for base in bases().values()] + [case.document for case in cases("fail")]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@st.composite
def mutants(draw: st.DrawFn) -> Any:
    """A valid or nearly valid document with some places replaced, taken away or added."""
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 4))):
        found = [place for place in places(document) if place]
        if not found:
            break
        *parents, last = draw(st.sampled_from(found))
        node = document
        for key in parents:
            node = node[key]
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "replace":
            node[last] = draw(TREES | ARGUMENTS)
        elif change == "remove":
            del node[last]
        elif isinstance(node, dict):
            key = draw(KEYS | st.just("extraArgs"))
            node[key] = draw(ARGUMENTS if key == "extraArgs" else TREES)
        else:
            node.append(draw(TREES))
    return document


def check(document: Any) -> None:
    judgement = judge(document, DEFAULT, OFFLINE)
    json.dumps([finding.to_json() for finding in judgement.findings], allow_nan=False).encode()
    assert all(str(finding).encode() and finding.fix for finding in judgement.findings)
    assert judgement.deployment is not None or judgement.findings
    assert judgement.accepted == (
        judgement.deployment is not None and not any(f.severity == "error" for f in judgement.findings)
    )


@given(TREES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_document(document: Any) -> None:
    check(document)


@given(mutants())
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_nearly_valid_document(document: Any) -> None:
    check(document)


@given(mutants())
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_every_edit_can_be_applied(document: Any) -> None:
    try:
        plain = json.loads(json.dumps(document, allow_nan=False))
    except (TypeError, ValueError):
        return
    for finding in judge(plain, DEFAULT, OFFLINE).findings:
        applied(plain, finding.edits)


def test_document_that_contains_itself() -> None:
    """YAML anchors can do that; a walk without an eye on it never ends."""
    document: dict[str, Any] = copy.deepcopy(unshared(bases()["unified"]))
    document["spec"]["unified"]["additionalConfig"] = {"a": document}
    deployment, findings = parse(document)
    assert deployment is None
    assert [finding.rule for finding in findings] == ["SCHEMA010"]


def test_document_of_a_billion_values() -> None:
    """Ten aliases of ten aliases of ...: small as a file, endless as a tree."""
    level: Any = ["x"] * 10
    for _ in range(9):
        level = [level] * 10
    document = copy.deepcopy(unshared(bases()["unified"]))
    document["spec"]["unified"]["extraArgs"] = level
    deployment, findings = parse(document)
    assert deployment is None
    assert "SCHEMA010" in {finding.rule for finding in findings}


def test_document_nested_without_end() -> None:
    level: Any = {}
    for _ in range(5000):
        level = {"a": level}
    document = copy.deepcopy(unshared(bases()["unified"]))
    document["spec"]["unified"]["additionalConfig"] = level
    deployment, findings = parse(document)
    assert deployment is None
    assert [finding.rule for finding in findings] == ["SCHEMA010"]
