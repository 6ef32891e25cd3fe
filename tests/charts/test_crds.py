"""One definition of the API: what `kvpp crd` prints is what crds/ holds and the chart installs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kvpp_operator.crd import definitions

if TYPE_CHECKING:
    from collections.abc import Callable

    Template = Callable[..., str]

ROOT = Path(__file__).parents[2]


def crds_of(text: str) -> list[dict[str, Any]]:
    return [m for m in yaml.safe_load_all(text) if m and m["kind"] == "CustomResourceDefinition"]


def by_name(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {manifest["metadata"]["name"]: manifest for manifest in manifests}


def test_chart_installs_what_the_operator_defines(template: Template) -> None:
    """Stale: run `make generate`."""
    assert by_name(crds_of(template())) == by_name(definitions())


def test_crds_folder_holds_the_same() -> None:
    files = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert by_name(files) == by_name(definitions())


def test_crds_are_kept(template: Template) -> None:
    for crd in crds_of(template()):
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_crds_can_be_left_out(template: Template) -> None:
    assert crds_of(template({"crds": {"install": False}})) == []
