"""Pydantic's lax reading of JSON, as the engine's configuration classes use it."""

from __future__ import annotations

from typing import Any

import pytest

from kvpp_operator.engine_flags import types

FITS: list[tuple[Any, Any]] = [
    ("any", {"x": [1]}),
    ("str", "x"),
    ("bool", True), ("bool", 0), ("bool", 1.0), ("bool", "yes"), ("bool", "OFF"), ("bool", "t"),
    ("int", 3), ("int", 3.0), ("int", "3"), ("int", " 3 "), ("int", True), ("int", "3.0"),
    ("float", 3), ("float", "1e3"), ("float", False),
    ({"int": {"ge": 1, "lt": 5}}, 1),
    ({"float": {"gt": 0}}, 0.1),
    ({"one": ["a", 2]}, 2),
    ({"name": ["FULL"]}, "full"),
    ({"opt": "int"}, None),
    ({"list": "int"}, [1, "2"]),
    ({"map": "bool"}, {"a": "no"}),
    ({"union": ["int", {"one": ["x"]}]}, "x"),
    ({"fields": {"a": "int"}}, {"a": 1}),
    ({"fields": {"a": "int"}, "open": True}, {"b": 1}),
]  # fmt: skip
MISFITS: list[tuple[Any, Any, tuple[str, ...], str]] = [
    ("str", 1, (), "a string"),
    ("bool", 2, (), "true or false"),
    ("bool", "maybe", (), "true or false"),
    ("int", 3.5, (), "an integer"),
    ("int", None, (), "an integer"),
    ("int", "three", (), "an integer"),
    ("float", [], (), "a number"),
    ({"int": {"ge": 1, "lt": 5}}, 5, (), "an integer, at least 1, less than 5"),
    ({"one": [0, 2]}, False, (), "one of 0, 2"),
    ({"opt": {"one": ["a"]}}, "b", (), "one of a"),
    ({"list": "int"}, [1, "x"], ("1",), "an integer"),
    ({"list": "int"}, {}, (), "a list (each an integer)"),
    ({"map": "int"}, {"a": "x"}, ("a",), "an integer"),
    ({"union": ["int", "bool"]}, "x", (), "an integer or true or false"),
    ({"fields": {"a": {"fields": {"b": "int"}}}}, {"a": {"c": 1}}, ("a", "c"), "a known key"),
    ({"fields": {}}, [], (), "an object"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), FITS)
def test_a_value_fits(kind: Any, value: Any) -> None:
    assert list(types.misfits(value, kind)) == []


@pytest.mark.parametrize(("kind", "value", "path", "expected"), MISFITS)
def test_a_value_does_not_fit(kind: Any, value: Any, path: tuple[str, ...], expected: str) -> None:
    assert [(one.path, one.expected) for one in types.misfits(value, kind)] == [(path, expected)]


def test_every_misfit_is_found() -> None:
    kind = {"fields": {"a": "int", "b": {"list": "bool"}}}

    assert [one.path for one in types.misfits({"a": "x", "b": [2, True, 3], "c": 0}, kind)] == [
        ("a",),
        ("b", "0"),
        ("b", "2"),
        ("c",),
    ]
