"""What the chart renders, seen as whole files and as the facts that must hold for any values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    Template = Callable[..., str]

CHART = Path(__file__).parents[2] / "charts" / "kvpp-operator"
GOLDEN = Path(__file__).parent / "golden"

NAMESPACED = {"config": {"watchNamespaces": ["team-b", "team-a"]}, "rbac": {"hostNetwork": True}}
EVERYTHING: dict[str, Any] = {
    "fullnameOverride": "kvpp",
    "image": {
        "repository": "registry.example/ai/kvpp-operator",
        "digest": f"sha256:{'0' * 64}",
        "pullPolicy": "Always",
    },
    "imagePullSecrets": [{"name": "pull"}],
    "config": {
        "imageRepository": "registry.example/ascend/vllm-ascend",
        "poolImage": "registry.example/kvpp-pool:0.1.0",
        "chips": {"950DT": {"resourceName": "example.com/npu", "devicesPerNode": 4, "interconnect": "UBoE"}},
        "driverMounts": "Host",
        "kvPorts": {"first": 24000, "last": 25999},
        "reservedPorts": [24100, "24200-24299"],
        "allow": {"hostPaths": ["/mnt/models"], "hostNetworkNamespaces": ["team-a"]},
    },
    "workers": 16,
    "serviceAccount": {"name": "operator", "annotations": {"example.com/role": "kvpp"}},
    "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
    "podLabels": {"team": "serving", "app.kubernetes.io/name": "ours stays"},
    "podAnnotations": {"example.com/scrape": "true"},
    "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "metrics": {
        "service": {"annotations": {"example.com/port": "http"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "apiServer": {"cidrs": ["10.0.0.1/32"], "ports": [6443]},
    },
}
LEAST: dict[str, Any] = {
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "given"},
    "metrics": {"service": {"enabled": False}},
    "resources": {"requests": None, "limits": None},
    "nodeSelector": None,
}
CASES = {"default": {}, "namespaced": NAMESPACED, "everything": EVERYTHING, "least": LEAST}


@pytest.mark.parametrize("case", CASES)
def test_golden(template: Template, case: str) -> None:
    """The CRD is left out: crds/ shows it, and test_crds.py compares."""
    rendered = template(CASES[case], "--set", "crds.install=false")
    golden = GOLDEN / f"{case}.yaml"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def test_same_values_same_text(template: Template) -> None:
    """Argo CD renders again and again, and any difference is a change to roll out."""
    assert template(EVERYTHING) == template(EVERYTHING)


@pytest.mark.parametrize("path", sorted((CHART / "templates").iterdir()), ids=lambda path: path.name)
def test_templates_ask_for_nothing_that_differs_between_runs(path: Path) -> None:
    unstable = r"\b(lookup|rand\w*|now|date\w*|uuidv4|genCA\w*|gen\w+Cert\w*|genPrivateKey|derivePassword|htpasswd)\b"
    actions = " ".join(re.findall(r"\{\{(?!-? */\*)(.*?)\}\}", path.read_text(), re.DOTALL))
    assert re.findall(unstable, actions) == []


def test_pod_is_restricted_whatever_the_values(template: Template) -> None:
    for values in CASES.values():
        pod = deployment(template(values))["spec"]["template"]["spec"]
        assert pod["securityContext"].get("runAsNonRoot") is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_two_operators_never_run_at_once(template: Template) -> None:
    spec = deployment(template())["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_configuration_is_the_file_that_the_command_line_takes(template: Template) -> None:
    configmap = next(m for m in yaml.safe_load_all(template(EVERYTHING)) if m and m["kind"] == "ConfigMap")
    assert yaml.safe_load(configmap["data"]["config.yaml"]) == EVERYTHING["config"]


def test_change_of_configuration_starts_a_new_pod(template: Template) -> None:
    before, same, after = (
        deployment(template(values))["spec"]["template"]
        for values in ({}, {"metrics": {"service": {"enabled": False}}}, {"config": {"driverMounts": "Host"}})
    )
    assert before == same
    assert before != after


def test_versions_are_one(template: Template) -> None:
    """One release, one version: package, chart, image tag."""
    project = (CHART.parents[1] / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    image = deployment(template())["spec"]["template"]["spec"]["containers"][0]["image"]
    assert version is not None
    assert (chart["version"], chart["appVersion"], image.rpartition(":")[2]) == (version.group(1),) * 3


def deployment(text: str) -> dict[str, Any]:
    found: dict[str, Any] = next(m for m in yaml.safe_load_all(text) if m and m["kind"] == "Deployment")
    return found
