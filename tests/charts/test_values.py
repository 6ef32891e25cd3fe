"""values.schema.json: what it refuses, and that it agrees with the operator's own parser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pydantic import ValidationError

from kvpp_devcluster.processes import ProgramError
from kvpp_operator.configuration import Configuration
from kvpp_operator.docs.chart import values_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    Template = Callable[..., str]

CHART = Path(__file__).parents[2] / "charts" / "kvpp-operator"
SCHEMA = CHART / "values.schema.json"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown value": ({"replicaCount": 2}, "additional properties 'replicaCount' not allowed"),
    "unknown value below": ({"image": {"tagg": "1"}}, "at '/image': additional properties 'tagg' not allowed"),
    "no worker": ({"workers": 0}, "at '/workers': minimum: got 0, want 1"),
    "text for a number": ({"workers": "8"}, "at '/workers': got string, want integer"),
    "root": ({"podSecurityContext": {"runAsUser": 0}}, "at '/podSecurityContext/runAsUser'"),
    "privileged": ({"podSecurityContext": {"privileged": True}}, "additional properties 'privileged' not allowed"),
    "digest cut short": ({"image": {"digest": "sha256:abc"}}, "at '/image/digest'"),
    "pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy'"),
    "no port": ({"networkPolicy": {"apiServer": {"ports": []}}}, "at '/networkPolicy/apiServer/ports'"),
    "unknown configuration": (
        {"config": {"registry": "x"}},
        "at '/config': additional properties 'registry' not allowed",
    ),
    "port too high": ({"config": {"kvPorts": {"first": 22000, "last": 70000}}}, "at '/config/kvPorts/last'"),
    "unknown chip": ({"config": {"chips": {"H100": {}}}}, "at '/config/chips'"),
    "no account": ({"serviceAccount": {"create": False}}, "serviceAccount.name is needed"),
}

CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"imageRepository": "registry.example/vllm-ascend", "interface": "eth0", "runtimeClassName": "ascend"},
    {"imageRepository": ""},
    {"interface": "a-name-too-long-for-linux"},
    {"chips": {"A3": {"devicesPerNode": 16, "interconnect": "RoCE"}}},
    {"chips": {"A3": {"devicesPerNode": 0}}},
    {"chips": {"A3": {"devicesPerNode": "16"}}},
    {"chips": {"A3": {"interconnect": "Ethernet"}}},
    {"kvPorts": {"first": 24000, "last": 25999}},
    {"kvPorts": {"first": 24000}},
    {"kvPorts": {"first": 80, "last": 90}},
    {"reservedPorts": [6000, "7000-7010"]},
    {"reservedPorts": ["seven"]},
    {"reservedPorts": [True]},
    {"allow": {"hostPaths": ["/mnt/models"], "hostNetworkNamespaces": []}},
    {"allow": {"hostPath": "/mnt"}},
    {"watchNamespaces": ["team-a"]},
    {"watchNamespaces": "team-a"},
    {"driverMounts": "auto"},
)


def test_lint(helm: Callable[..., str]) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("case", REFUSED)
def test_refused(template: Template, case: str) -> None:
    values, reason = REFUSED[case]
    with pytest.raises(ProgramError) as refusal:
        template(values)
    assert reason in str(refusal.value)


def test_every_mistake_at_once(template: Template) -> None:
    with pytest.raises(ProgramError) as refusal:
        template({"workers": 0, "config": {"driverMounts": "auto", "registry": "x"}})
    assert [place in str(refusal.value) for place in ("'/workers'", "'/config/driverMounts'", "'registry'")] == [
        True
    ] * 3


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=json.dumps)
def test_chart_and_operator_take_the_same_configurations(template: Template, configuration: dict[str, Any]) -> None:
    """A file that Helm lets pass and the operator refuses would be a pod that never starts."""
    assert accepted(ProgramError, lambda: template({"config": configuration})) == accepted(
        ValidationError, lambda: Configuration.model_validate(configuration)
    )


def accepted(refusal: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except refusal:
        return False
    return True


def test_schema_is_current() -> None:
    assert SCHEMA.read_text() == values_schema(SCHEMA.read_text()), "run `make generate`"


def test_schema_and_defaults_name_the_same_values() -> None:
    """A value without a default is not found by those who read values.yaml."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads(SCHEMA.read_text())
    listed = {path for path in named(schema) if not path.startswith(("global", "config."))}
    assert listed == set(leaves(values, schema)) | {"resources.requests", "resources.limits"}


def named(schema: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for name, node in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        found += named(node, here) if "properties" in node and name != "config" else [here]
    return found


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for name, value in values.items():
        here, node = f"{path}.{name}".lstrip("."), schema["properties"][name]
        found += leaves(value, node, here) if "properties" in node and name != "config" else [here]
    return found
