"""podTemplate over ours: the list-key table."""

from __future__ import annotations

import re
from typing import Any

import pytest
import specs
from hypothesis import given
from hypothesis import strategies as st

from kvpp_operator.render.merge import LIST_KEYS, identity_of, merge, merge_pod

OURS: dict[str, Any] = {
    "metadata": {"labels": {"app": "kvpp"}},
    "spec": {
        "containers": [
            {
                "name": "vllm",
                "image": "engine:1",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                "livenessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10},
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                "resources": {"requests": {"cpu": "40"}},
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "128Gi"}}],
        "affinity": {"podAntiAffinity": {"x": 1}},
    },
}


def vllm(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "vllm", **fields}]}}


@pytest.mark.parametrize(
    ("what", "override", "path", "expected"),
    [
        ("a variable is replaced in its place", vllm(env=[{"name": "A", "value": "9"}]), "env", [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}]),
        ("a new variable comes last", vllm(env=[{"name": "C", "value": "3"}]), "env", [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ("valueFrom replaces value", vllm(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]), "env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "value": "2"}]),
        ("a name given twice stands once", vllm(env=[{"name": "C", "value": "3"}, {"name": "C", "value": "4"}]), "env", [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "4"}]),
        ("a port is known by number and protocol, TCP by default", vllm(ports=[{"containerPort": 8000, "name": "api"}]), "ports", [{"name": "api", "containerPort": 8000, "protocol": "TCP"}]),
        ("a mount is known by its path", vllm(volumeMounts=[{"name": "other", "mountPath": "/dev/shm"}]), "volumeMounts", [{"name": "other", "mountPath": "/dev/shm"}]),
        ("a probe has one handler", vllm(livenessProbe={"exec": {"command": ["true"]}}), "livenessProbe", {"exec": {"command": ["true"]}, "periodSeconds": 10}),
        ("a mount's path may end with a slash", vllm(volumeMounts=[{"name": "other", "mountPath": "/dev/shm/"}]), "volumeMounts", [{"name": "other", "mountPath": "/dev/shm/"}]),
        ("a port of another protocol is another port", vllm(ports=[{"containerPort": 8000, "protocol": "UDP"}]), "ports", [{"name": "http", "containerPort": 8000, "protocol": "TCP"}, {"containerPort": 8000, "protocol": "UDP"}]),
        ("an image is replaced", vllm(image="engine:2"), "image", "engine:2"),
        ("a hook has one handler", vllm(lifecycle={"preStop": {"exec": {"command": ["true"]}}}), "lifecycle", {"preStop": {"exec": {"command": ["true"]}}}),
        ("null takes one request away", vllm(resources={"requests": {"cpu": None}}), "resources", {"requests": {}}),
        ("odd names are names", vllm(env=[{"name": "a.b-c", "value": "1"}, {"name": "_", "value": ""}]), "env", [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "a.b-c", "value": "1"}, {"name": "_", "value": ""}]),
    ],
)  # fmt: skip
def test_the_engines_container(what: str, override: dict[str, Any], path: str, expected: Any) -> None:
    [container] = merge_pod(OURS, [override])["spec"]["containers"]
    assert container[path] == expected, what


def test_a_volume_has_one_source() -> None:
    merged = merge_pod(OURS, [{"spec": {"volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm"}}]}}])
    assert merged["spec"]["volumes"] == [{"name": "shm", "hostPath": {"path": "/dev/shm"}}]


def test_a_sidecar_stands_beside_the_engine() -> None:
    merged = merge_pod(OURS, [{"spec": {"containers": [{"name": "log", "image": "log:1"}]}}])
    assert [container["name"] for container in merged["spec"]["containers"]] == ["vllm", "log"]


def test_null_takes_a_default_away() -> None:
    assert "affinity" not in merge_pod(OURS, [{"spec": {"affinity": None}}])["spec"]


def test_later_overrides_win_and_ours_is_never_changed() -> None:
    first, second = {"metadata": {"labels": {"a": "1", "b": "1"}}}, {"metadata": {"labels": {"b": "2"}}}
    assert merge_pod(OURS, [first, second])["metadata"]["labels"] == {"app": "kvpp", "a": "1", "b": "2"}
    assert OURS["metadata"] == {"labels": {"app": "kvpp"}}


def test_an_empty_override_changes_nothing() -> None:
    empty: dict[str, Any] = {
        "metadata": {"labels": {}, "annotations": {}},
        "spec": {},
        "worker": {"metadata": {}, "spec": {}},
    }
    assert merge_pod(OURS, [empty]) == OURS


def test_an_empty_list_takes_the_anti_affinity_away() -> None:
    """`null` would too, but `kubectl apply` drops it."""
    ours = {"spec": {"affinity": {"podAntiAffinity": {"required": [{"topologyKey": "kubernetes.io/hostname"}]}}}}
    merged = merge_pod(ours, [{"spec": {"affinity": {"podAntiAffinity": {"required": []}}}}])
    assert merged["spec"]["affinity"] == {"podAntiAffinity": {"required": []}}


KEYED = {
    "env": st.fixed_dictionaries({"name": st.sampled_from("AB"), "value": st.sampled_from(["1", "2"])}),
    "volumeMounts": st.fixed_dictionaries({"name": st.sampled_from("xy"), "mountPath": st.sampled_from(["/a", "/a/", "/b"])}),
    "ports": st.fixed_dictionaries({"containerPort": st.sampled_from([1, 2])}, optional={"protocol": st.sampled_from(["TCP", "UDP"])}),
}  # fmt: skip
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["vllm", "log"])},
        optional={name: st.lists(item, max_size=4) for name, item in KEYED.items()},
    ),
    max_size=3,
)
FRAGMENTS = st.lists(
    st.fixed_dictionaries(
        {"containers": CONTAINERS},
        optional={
            "volumes": st.lists(
                st.fixed_dictionaries({"name": st.sampled_from("xy"), "emptyDir": st.just({})}), max_size=4
            )
        },
    ).map(lambda spec: {"spec": spec}),
    max_size=3,
)


@given(FRAGMENTS)
def test_no_key_ever_stands_twice(overrides: list[dict[str, Any]]) -> None:
    """Whatever is written twice, in one fragment or in several, in our container or in one of the user's."""
    spec = merge_pod(OURS, overrides)["spec"]
    for name, items in (("containers", spec["containers"]), ("volumes", spec["volumes"]), *parts(spec["containers"])):
        keys = [identity_of(name, item) for item in items]
        assert len(keys) == len(set(keys)), name


def parts(containers: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, container[name]) for container in containers for name in KEYED if name in container]


def test_lists_without_a_key_are_replaced_whole() -> None:
    assert merge({"args": ["a", "b"]}, {"args": ["c"]}) == {"args": ["c"]}


def test_the_documented_table_is_the_one_that_merges() -> None:
    page = (specs.ROOT / "docs" / "nodes.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert {
        name: tuple(re.findall(r"`(\w+)`", row)[: len(LIST_KEYS[name])])
        for name, row in rows.items()
        if name in LIST_KEYS
    } == LIST_KEYS
