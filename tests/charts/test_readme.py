"""The README's own commands, as they stand there: what a newcomer pastes works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import specs
from operator_process import Cluster, Operator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvpp_devcluster.cluster import LocalCluster

README = (specs.ROOT / "README.md").read_text("utf-8")
SECONDS = 120.0


def commands(heading: str) -> list[str]:
    """The lines of the first console block below a heading."""
    block = re.search(rf"^## {heading}\n.*?^```console\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert block is not None
    return [line.partition("  #")[0].rstrip() for line in block[1].splitlines() if line]


@pytest.fixture
def shell(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user who has kubectl, Helm and a kubeconfig, and takes everything away again."""
    local_cluster.helm("version")
    for name in ("kubectl", "helm"):
        (tmp_path / name).symlink_to(local_cluster.programs[name])
    yield os.environ | local_cluster.environment() | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    local_cluster.helm("uninstall", "kvpp-operator", "-n", "kvpp-system", "--wait", "--ignore-not-found")
    for crd in sorted((specs.ROOT / "crds").glob("*.yaml")):
        local_cluster.kubectl("delete", "-f", str(crd), "--ignore-not-found")


@pytest.mark.cluster
def test_install(local_cluster: LocalCluster, shell: dict[str, str], tmp_path: Path) -> None:
    install, apply, get = commands("Install")
    assert (install.split()[0], apply.split()[0], get) == ("helm", "kubectl", "kubectl get kvpp")
    for line in (install, apply):
        subprocess.run(["bash", "-euc", line], cwd=specs.ROOT, env=shell, check=True)
    # A simulated node plays the operator's pod, so the process runs here, with what its pod would have: the account.
    kubeconfig = local_cluster.control_plane.kubeconfig_for_service_account("kvpp-system", "kvpp-operator")
    operator = Operator(kubeconfig, tmp_path / "operator.log")
    operator.start()
    try:
        user = Cluster(local_cluster, "default")
        user.wait("glm-5-2-pd", "Applied", seconds=SECONDS)
        shown = subprocess.run(
            ["bash", "-euc", get], cwd=specs.ROOT, env=shell, check=True, capture_output=True, text=True
        )
        assert shown.stdout.split("\n")[1].split()[0] == "glm-5-2-pd"
        user.kubectl("delete", "kvpp", "glm-5-2-pd", "--wait")
    finally:
        assert operator.stop() == 0
    assert [line for line in operator.logged() if "orbidden" in str(line)] == []


def test_the_two_commands_are_targets() -> None:
    targets = {
        line.partition(":")[0]
        for line in (specs.ROOT / "Makefile").read_text("utf-8").splitlines()
        if line[:1].isalpha()
    }
    assert {line.split()[1] for line in commands("See it run")} <= targets


def test_every_command_of_the_table_is_there() -> None:
    written = set(re.findall(r"`kvpp ([a-z-]+)", README))
    helped = subprocess.run(
        [sys.executable, "-m", "kvpp_operator", "--help"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    ).stdout
    assert written
    assert {command for command in written if command not in helped} == set()
