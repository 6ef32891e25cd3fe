"""podTemplate over ours: the list-key table."""

from __future__ import annotations

from typing import Any

import pytest

from kvpp_operator.render.merge import merge, merge_pod

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
        ("an image is replaced", vllm(image="engine:2"), "image", "engine:2"),
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


def test_lists_without_a_key_are_replaced_whole() -> None:
    assert merge({"args": ["a", "b"]}, {"args": ["c"]}) == {"args": ["c"]}
