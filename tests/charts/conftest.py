"""The chart as the real Helm sees it, and a control plane of its own to install it on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import specs
import yaml

from kvpp_devcluster import programs
from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.nodes import NodeGroup
from kvpp_devcluster.processes import run
from kvpp_operator.configuration import DEFAULT
from kvpp_operator.engine_ports import pod_network_plan
from kvpp_operator.pipeline import Planned, with_ports
from kvpp_operator.plan.planner import plan_roles
from kvpp_operator.render.pool import meta_service
from kvpp_operator.render.router import role as role_of_router
from kvpp_operator.render.router import router_plan
from kvpp_operator.rules import judge
from kvpp_operator.world import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = Path(__file__).parents[2] / "charts" / "kvpp-operator"

Values = dict[str, Any]
Manifest = dict[str, Any]


def pytest_configure(config: pytest.Config) -> None:
    # Does nothing when the conftest.py above has named the plugin already.
    config.pluginmanager.import_plugin("kvpp_devcluster.pytest_plugin")


class Helm(Protocol):
    def __call__(self, *arguments: str) -> str:
        """Run Helm and return its output; ProgramError carries its error output."""


class Template(Protocol):
    def __call__(self, values: Values | None = None, *arguments: str) -> str:
        """Run `helm template` for release `test` in namespace `kvpp-system`, as Helm prints it."""


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Any:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def line(message: str) -> None:
        with capture.global_and_fixture_disabled():  # a first build takes minutes: show that it goes on
            print(message, file=sys.stderr, flush=True)

    return line


@pytest.fixture
def helm(say: Any, tmp_path: Path) -> Helm:
    """Helm without a cluster and without anybody's settings."""
    binary = programs.ensure(["helm"], say=say)["helm"]
    homes = {f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    environment = {"KUBECONFIG": str(tmp_path / "none"), **homes}
    return lambda *arguments: run([binary, *arguments], env=environment)


@pytest.fixture
def template(helm: Helm, tmp_path: Path) -> Template:
    def render(values: Values | None = None, *arguments: str) -> str:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        return helm("template", "test", str(CHART), "--namespace", "kvpp-system", "--values", str(file), *arguments)

    return render


@pytest.fixture(scope="session")
def local_cluster(pytestconfig: pytest.Config) -> Iterator[LocalCluster]:
    """Give a cluster where nobody else has installed the CRD: Helm takes over no object that it did not make."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def line(message: str) -> None:
        with capture.global_and_fixture_disabled():
            print(message, file=sys.stderr, flush=True)

    with LocalCluster(groups=[NodeGroup("node", 1, {"huawei.com/npu": "8"}, {})], say=line) as cluster:
        yield cluster


@pytest.fixture
def roles_of_pods() -> list[Manifest]:
    """Give the Roles that the operator writes for pods of its own: MetaService and router."""
    router = router_plan(plan_of(specs.EXAMPLES[1]), "router")
    assert router is not None
    return [meta_service.role(plan_of(specs.EXAMPLES[3])), role_of_router(router)]


def plan_of(example: Path) -> Any:
    """Plan whether or not a rule says that this build lacks a feature."""
    judgement = judge(specs.read(example)[0], DEFAULT, OFFLINE)
    assert judgement.resolved is not None
    return with_ports(Planned(judgement), plan_roles(judgement.resolved), pod_network_plan(judgement.resolved)).plan


def documents(text: str) -> list[Manifest]:
    """Parse what `helm template` printed."""
    return [document for document in yaml.safe_load_all(text) if document]
