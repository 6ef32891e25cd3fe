"""Reading the rules' cases (`tests/rules/cases`), from which examples and coverage are generated."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kvpp_operator.rules.edits import put
from kvpp_operator.rules.paths import split

FOLDER = Path(__file__).resolve().parents[4] / "tests" / "rules" / "cases"

SETTINGS = {
    "unified": "a unified deployment",
    "pd": "a deployment with prefill and decode",
    "host": "prefill and decode on the host network",
    "memcache": "a unified deployment with a memcache pool",
    "layerwise": "a unified deployment with a layerwise Mooncake pool",
    "mooncake": "a unified deployment without KVPP, with a Mooncake pool",
    "pd-memcache": "prefill and decode with a memcache pool",
    "pd-layerwise": "prefill and decode with a layerwise Mooncake pool",
}
"""The bases of `tests/rules/bases.yaml`, in words."""


@cache
def cases() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Rule id → `pass` or `fail` → name → case."""
    return {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yaml"))}


def example(case: dict[str, Any]) -> str:
    """A case as YAML: what differs from its base, which a comment names."""
    lines = [f"# {SETTINGS[case.get('base', 'unified')]}"]
    lines += [f"# without {path}" for path in case.get("remove", ())]
    if "before" in case:
        lines.append("# the same ran before without this change")
    if "configuration" in case:
        lines.append(f"# operator configuration: {json.dumps(case['configuration'])}")
    changed: dict[str, Any] = {}
    for path, value in case.get("set", {}).items():
        put(changed, split(path), value)
    body = yaml.safe_dump(changed, sort_keys=False, allow_unicode=True, width=110) if changed else ""
    return "\n".join([*lines, *body.splitlines()])


def examples_json() -> str:
    """`rules/examples.json`: the first failing case of each rule."""
    found = {rule: example(next(iter(kinds["fail"].values()))) for rule, kinds in cases().items()}
    return json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
