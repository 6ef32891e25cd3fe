"""The parts of the conformance tools that need no engine."""

from __future__ import annotations

import enum
import json
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import pytest
from kvpp_conformance import agree, check, generate, releases
from kvpp_conformance.engine import types
from kvpp_conformance.randomly import LEFT_OUT, Lists
from pydantic import ConfigDict, field_validator
from pydantic.dataclasses import dataclass

from kvpp_operator import versions
from kvpp_operator.engine_flags import VERSIONS, catalogue


def test_the_pairs_are_those_of_the_operator() -> None:
    assert {one.name: one.vllm for one in versions.RELEASES if one.name != "latest"} == releases.PAIRS
    assert (*releases.PAIRS,) == VERSIONS
    assert versions.NEWEST_PINNED.name == releases.NEWEST


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["all"], ["0.28.0rc1", "0.29.0rc1", "0.30.0rc1", "0.30.0rc2"]),
        (["0.30.0"], ["0.30.0rc1", "0.30.0rc2"]),
        (["0.30.0rc2", "0.28.0", "0.30.0"], ["0.30.0rc2", "0.28.0rc1", "0.30.0rc1"]),
    ],
)
def test_versions_are_named_by_either_project(names: list[str], chosen: list[str]) -> None:
    assert releases.ascend(names) == chosen


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown version 0\.27\.0: known are 0\.28\.0rc1"):
        releases.ascend(["0.27.0"])


class Mode(enum.Enum):
    NONE = 0
    FULL = 1


@dataclass(config=ConfigDict(extra="forbid"))
class Inner:
    wide: bool = False


@dataclass(config=ConfigDict(extra="forbid"))
class Settings:
    size: int = 1
    share: float | None = None
    kind: Literal["a", "b"] = "a"
    names: list[str] = field(default_factory=list)
    inner: Inner = field(default_factory=Inner)
    mode: Mode = Mode.NONE
    cooked: int = 0

    @field_validator("mode", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return Mode[value.upper()] if isinstance(value, str) else value

    @field_validator("cooked", mode="before")
    @classmethod
    def _from_anything(cls, value: Any) -> Any:
        return len(str(value))


def test_a_configuration_class_is_boiled_down_to_types() -> None:
    assert types.describe(Settings) == {
        "fields": {
            "size": "int",
            "share": {"opt": "float"},
            "kind": {"one": ["a", "b"]},
            "names": {"list": "str"},
            "inner": {"fields": {"wide": "bool"}},
            "mode": {"union": [{"name": ["NONE", "FULL"]}, {"one": [0, 1]}]},
            "cooked": "any",
        }
    }


def test_a_catalogue_is_written_one_flag_a_line(tmp_path: Path) -> None:
    flag = {
        "name": "--size",
        "names": ["-s", "--size"],
        "kind": "int",
        "values": 1,
        "optional": True,
        "repeats": False,
        "deprecated": False,
    }
    data = {"source": "x", "flags": [generate.row(flag)], "additional": {"enable_kvpp": "bool"}, "ignored": []}

    written = generate.write("1.0", data, tmp_path).read_text()

    assert written == (
        '{"source":"x",\n"flags":[\n["--size -s","int",1,{"optional":true}]\n],\n'
        '"additional":{\n"enable_kvpp":"bool"\n},\n"ignored":[]}\n'
    )
    assert json.loads(written) == data


def test_random_lists_are_the_same_for_the_same_seed() -> None:
    known = catalogue("0.30.0rc2")
    first, again, other = (Lists(known, seed) for seed in (1, 1, 2))

    assert [first.next() for _ in range(50)] == [again.next() for _ in range(50)] != [other.next() for _ in range(50)]
    assert LEFT_OUT.keys() - known.flags.keys() == set()


VERDICTS: dict[str, tuple[list[str], dict[str, Any], int]] = {
    "both take it": (["--seed", "1"], {"parser": "ok", "taken": [["--seed", ["1"]]]}, 0),
    "both refuse it": (["--seed", "x"], {"parser": "argument --seed: invalid int value: 'x'", "taken": None}, 0),
    "only we take it": (["--seed", "1"], {"parser": "no", "taken": None}, 1),
    "only we refuse it": (["--seed", "x"], {"parser": "ok", "taken": [["--seed", ["x"]]]}, 1),
    "other values": (["--seed", "1"], {"parser": "ok", "taken": [["--seed", ["2"]]]}, 1),
    "other flags": (["--seed", "1"], {"parser": "ok", "taken": [["--port", ["1"]]]}, 1),
    "a check across fields": (["--kv-transfer-config", "{}"], {"parser": "… [type=value_error]", "taken": None}, 0),
    "a check across fields of nothing": (["--seed", "1"], {"parser": "… [type=value_error]", "taken": None}, 1),
    "what nobody can mean": (["--"], {"parser": "ok", "taken": []}, 0),
}


@pytest.mark.parametrize(("words", "answer", "disagreements"), VERDICTS.values(), ids=VERDICTS)
def test_a_disagreement_is_told(words: list[str], answer: dict[str, Any], disagreements: int) -> None:
    found = agree.compare(iter([(words, answer)]), catalogue("0.30.0rc2"), agree.Tally())

    assert len([*found]) == disagreements


EXPECTED: list[tuple[dict[str, str], tuple[str | None, str | None, str | None], bool]] = [
    ({}, ("ok", "ok", None), True),
    ({}, ("ok", "ok", "no"), False),
    ({"parser": "refused"}, ("bad", None, None), True),
    ({"parser": "ok", "kvpp": "eager only"}, ("ok", "it is eager only.", None), True),
    ({"parser": "ok", "kvpp": "eager only"}, ("ok", "ok", None), False),
    ({"parser": "ok", "kvpp": "refused"}, ("bad", None, None), False),
    ({"parser": "refused"}, ("ok", "ok", None), False),
]


@pytest.mark.parametrize(("expect", "said", "as_expected"), EXPECTED)
def test_a_verdict_is_compared_with_what_a_line_expects(
    expect: dict[str, str],
    said: tuple[str | None, str | None, str | None],
    as_expected: bool,  # noqa: FBT001
) -> None:
    line = {"expect": expect} if expect else {}

    assert check.is_expected(line, dict(zip(check.PARTS, said, strict=True))) == as_expected


def test_only_lines_of_the_chosen_releases_are_read(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(
        "\n".join(json.dumps({"id": version, "version": version}) for version in ("0.28.0rc1", "latest", "0.30.0rc2"))
    )

    assert [line["id"] for line in check.read([file], ["0.30.0rc2"])] == ["latest", "0.30.0rc2"]


def test_the_known_lines_cover_every_release_and_every_kind_of_attention() -> None:
    lines = [json.loads(text) for text in Path(__file__).with_name("known.jsonl").read_text().splitlines()]

    assert {line["version"] for line in lines} == {*releases.PAIRS}
    assert {line["model"]["attention"] for line in lines if "model" in line} == {"MLA", "SFA", "GQA", "Hybrid"}
