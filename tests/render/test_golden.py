"""Whole manifests of every example and golden case, read in review. `make golden` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import specs
import yaml

from kvpp_operator.cli.manifests import to_yaml
from kvpp_operator.configuration import Configuration
from kvpp_operator.pipeline import plan_one, wished

HERE = Path(__file__).parent
CASES = [*specs.EXAMPLES, *sorted((HERE / "cases").glob("*.yaml"))]


def rendered(file: Path) -> str:
    """Manifests of the accepted documents; what revisions keep of engines and pools is not repeated."""
    manifests = []
    for body in specs.read(file):
        plan = plan_one(body, Configuration()).plan
        manifests += wished(plan) if plan else []
    for manifest in manifests:
        if manifest["kind"] == "ControllerRevision":
            manifest["data"] = {**manifest["data"], **shortened(manifest["data"])}
    return to_yaml(manifests)


def shortened(data: dict[str, Any]) -> dict[str, str]:
    if "templates" in data:
        return {"templates": f"of {', '.join(data['templates'])}"}
    return {"manifests": f"of {', '.join(manifest['kind'] for manifest in data['manifests'])}"}


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_manifests_are_as_reviewed(file: Path) -> None:
    golden = HERE / "golden" / f"{file.stem}.yaml"
    now = rendered(file)
    if os.environ.get("GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(now, "utf-8")
    assert golden.read_text("utf-8") == now


def test_every_golden_file_has_its_case() -> None:
    assert {file.stem for file in CASES} == {file.stem for file in (HERE / "golden").glob("*.yaml")}


def test_rendering_twice_gives_the_same_text() -> None:
    body = specs.read(specs.EXAMPLES[0])[0]
    assert to_yaml(wished(specs.planned(body))) == to_yaml(wished(specs.planned(yaml.safe_load(yaml.safe_dump(body)))))
