"""Whatever is written, it is read: no list of words makes the parser raise. What the engine says of them: kvpp_conformance agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvpp_operator.engine_flags import catalogue, check_additional, parse, requirements

NEWEST = catalogue("0.30.0rc2")
NAMES = st.sampled_from(sorted(NEWEST.spellings))
PIECES = st.sampled_from(
    ["=", ".", "+", "_", "-", "--", "-O", "x", "1", "1k", "{}", "[", '{"a": 1}', " ", "None", "é", "\n"]
)
WORDS = st.one_of(NAMES, PIECES, st.text(max_size=6), st.lists(st.one_of(NAMES, PIECES), max_size=4).map("".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted(NEWEST.additional_keys)), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(WORDS, max_size=8))
def test_every_list_is_read(words: list[str]) -> None:
    parsed = parse(words, NEWEST)

    assert [one.text for one in parsed] == [words[one.index] for one in parsed]
    assert all(one.flag is not None or one.problems for one in parsed)
    assert bool(parsed.arguments) == bool(words)
    assert [use for use, _ in requirements(parsed)] == [
        use for use, _ in requirements(parsed) if use in parsed.arguments
    ]


@given(st.dictionaries(st.sampled_from([*sorted(NEWEST.additional_keys), "zzz"]), JSON, max_size=4))
def test_every_additional_configuration_is_judged(config: dict[str, object]) -> None:
    found = [*check_additional(config, NEWEST)]

    assert all(one.path[0] in config for one in found)
    assert any(one.path == ("zzz",) for one in found) == ("zzz" in config)
