"""Paths are text for people and a contract for scripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpp_operator.rules import paths
from kvpp_operator.rules.edits import Remove, Set, applied

TABLE = [
    (("spec", "prefill", "env", 0, "name"), "spec.prefill.env[0].name"),
    (("metadata", "labels", "a.b/c"), 'metadata.labels["a.b/c"]'),
    (("spec", "a b", 'c"d'), 'spec["a b"]["c\\"d"]'),
    ((), ""),
]


@pytest.mark.parametrize(("parts", "text"), TABLE)
def test_both_ways(parts: tuple[str | int, ...], text: str) -> None:
    assert paths.join(parts) == text
    assert paths.split(text) == parts


@given(st.lists(st.integers(0, 999) | st.text(min_size=1), min_size=1, max_size=6))
def test_any_path_survives(parts: list[str | int]) -> None:
    if isinstance(parts[0], int):
        parts = ["spec", *parts]
    assert paths.split(paths.join(parts)) == tuple(parts)


def test_order_counts_numbers() -> None:
    assert sorted(["a[10]", "a[9]", "a.b", "a"], key=paths.order) == ["a", "a.b", "a[9]", "a[10]"]


def test_edits_mean_the_document_as_it_was() -> None:
    """Entries go from the end of a list, so earlier removals move nothing."""
    body = {"a": [0, 1, 2, 3], "b": {}}
    assert applied(body, [Remove("a[1]"), Remove("a[3]"), Set("b.c.d", 1), Set("b.e[0]", 5)]) == {
        "a": [0, 2],
        "b": {"c": {"d": 1}, "e": [5]},
    }
    assert body == {"a": [0, 1, 2, 3], "b": {}}


def test_edit_in_words() -> None:
    assert str(Set("spec.unified.graphMode", "Eager")) == "set spec.unified.graphMode to Eager"
    assert str(Set("a", {"b": [True, None]})) == "set a to {b: [true, null]}"
    assert (
        str(Set("a", ["8", "x", "yes", "", "1.5", "0x8", "8Gi"])) == 'set a to ["8", x, "yes", "", "1.5", "0x8", 8Gi]'
    )
    assert str(Remove("a[0]")) == "remove a[0]"
