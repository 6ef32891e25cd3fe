"""Published recipes as deployments: what differs from the published command lines, leaf by leaf, and why.

`published/<recipe>.yaml` holds flags and variables of the guides' scripts, `reasons.yaml` a reason for each difference: by a
pattern for all recipes, or for one. Nothing may differ without a reason, and no reason may stand without a difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import specs
import yaml

from kvpp_operator.render.commands import commands

HERE = Path(__file__).parent
FOLDER = specs.ROOT / "examples" / "recipes"
RECIPES = sorted(FOLDER.glob("*.yaml"))
ABSENT = "–"


@dataclass(frozen=True)
class Difference:
    role: str
    path: str
    published: str
    ours: str
    reason: str

    def __str__(self) -> str:
        return f"{self.role} {self.path}: published {self.published}, ours {self.ours}: {self.reason or 'NO REASON'}"


def published(recipe: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((HERE / "published" / recipe.name).read_text("utf-8"))
    return found


@cache
def reasons() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load((HERE / "reasons.yaml").read_text("utf-8"))
    return found


def differences(recipe: Path) -> list[Difference]:
    """In the order of the published script, then what only we say."""
    source, found = published(recipe), []
    ours = our_commands(recipe)
    for role in ours:
        theirs, mine = dict(leaves(source[role])), dict(leaves(ours[role]))
        for path in [*theirs, *(path for path in mine if path not in theirs)]:
            there, here = theirs.get(path, ABSENT), mine.get(path, ABSENT)
            if not same(there, here):
                found.append(Difference(role, path, there, here, reason(recipe.stem, role, path)))
    return found


def our_commands(recipe: Path) -> dict[str, dict[str, Any]]:
    """Flags and variables of each role's first engine, head."""
    [body] = specs.read(recipe)
    return {
        command.role: {"flags": flags_of(command.argv), "env": command.env}
        for command in commands(specs.planned(body))
        if (command.engine, command.node_rank) == (0, 0)
    }


def flags_of(argv: tuple[str, ...]) -> dict[str, Any]:
    """`serve MODEL --flag value --switch …` as a map; JSON values are read."""
    flags: dict[str, Any] = {}
    words = list(argv[2:])
    while words:
        flag = words.pop(0)
        value: Any = words.pop(0) if words and not words[0].startswith("--") else True
        flags[flag] = json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    return flags


def leaves(command: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in command["flags"].items():
        flag, _, key = name.partition(".")
        flag = flag.replace("_", "-")  # argparse takes both, and a dot for a key of a JSON flag
        yield from below(f"{flag} {key}" if key else flag, value)
    for name, value in command["env"].items():
        yield f"${name}", str(value)


def below(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """One line for each leaf: `--flag key key[0] key`."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from below(f"{path} {key}", item)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from below(f"{path}[{index}]", item)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def same(one: str, other: str) -> bool:
    """`0.90` is `0.9`."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def reason(recipe: str, role: str, path: str) -> str:
    """The recipe's own reason, else the general one; the first pattern that fits."""
    given = reasons()
    for table in (given.get(recipe, {}), given["everywhere"]):
        for pattern, text in table.items():
            if fits(pattern, role, path):
                return text
    return ""


def fits(pattern: str, role: str, path: str) -> bool:
    """A pattern may name a role first: `prefill/--flag`. Only `*` is special."""
    named, slash, rest = pattern.partition("/")
    if slash and named != role:
        return False
    return fnmatchcase(path, (rest if slash else pattern).replace("[", "[[]"))


def page() -> str:
    """examples/recipes/README.md."""
    lines = [(HERE / "head.md").read_text("utf-8")]
    for recipe in RECIPES:
        lines += [
            f"## {recipe.stem}\n",
            f"From {published(recipe)['source']}.\n",
            "| role | what | published | ours | why |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {one.role} | `{one.path}` | {cell(one.published)} | {cell(one.ours)} | {one.reason} |"
            for one in differences(recipe)
        ]
        lines.append("")
    return "\n".join(lines)


def cell(text: str) -> str:
    return ABSENT if text == ABSENT else f"`{text}`".replace("|", "\\|")


README = FOLDER / "README.md"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_every_difference_has_its_reason(recipe: Path) -> None:
    found = differences(recipe)
    print(f"\n{recipe.stem}", *found, sep="\n  ")
    assert [str(one) for one in found if not one.reason] == []


def test_no_reason_without_its_difference() -> None:
    found = {recipe.stem: differences(recipe) for recipe in RECIPES}
    every = [one for several in found.values() for one in several]
    stale = [
        f"{name}: {pattern}"
        for name, table in reasons().items()
        for pattern in table
        if not any(fits(pattern, one.role, one.path) for one in (every if name == "everywhere" else found[name]))
    ]
    assert stale == []


def test_kvpp_is_on_prefill_and_nowhere_else() -> None:
    for recipe in RECIPES:
        changed = {one.role: one.ours for one in differences(recipe) if one.path == "--additional-config enable_kvpp"}
        assert changed in ({"prefill": "true"}, {"unified": "true"}), recipe.stem


def test_the_page_is_current() -> None:
    now = page()
    if os.environ.get("GOLDEN") == "write":
        README.write_text(now, "utf-8")
    assert README.read_text("utf-8") == now
