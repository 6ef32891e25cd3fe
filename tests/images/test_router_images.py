"""The images on top of the operator's: router and simulated engine; and the engine's layer on a base without an engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from image import Image, built

from kvpp_operator import versions

pytestmark = pytest.mark.long

RELEASES = [release.name for release in versions.RELEASES if release != versions.LATEST]


@pytest.fixture(scope="module")
def router() -> Iterator[Image]:
    with built("operator", "router") as made:
        yield made


@pytest.fixture(scope="module")
def simulator() -> Iterator[Image]:
    with built("operator", "engine-simulator") as made:
        yield made


def test_nobody_is_root_and_nothing_can_be_changed(router: Image, simulator: Image) -> None:
    for image in (router, simulator):
        assert image.config["User"] == "65532:65532"
        assert (image.writable(), image.gives_rights_away()) == ([], [])
        assert "PIP_INDEX_URL" not in image.inspected


def test_the_agent_starts_and_says_what_it_lacks(router: Image) -> None:
    assert router.run("kvpp", "router-agent", "--help").returncode == 0
    done = router.run(
        "kvpp", "router-agent", "--deployment", "glm", "--service", "glm-router", "--namespace", "default"
    )
    assert (done.returncode, "no way to the API server" in done.stderr) == (2, True)


@pytest.mark.parametrize("release", RELEASES)
def test_the_proxy_of_every_release_starts(router: Image, release: str) -> None:
    done = router.run("pd-proxy", release, "--help")
    assert done.returncode == 0, done.stderr
    assert "--prefiller-hosts" in done.stdout


def test_the_simulated_engine_takes_and_refuses(simulator: Image) -> None:
    done = simulator.run("/usr/bin/env", "vllm", "serve", "/m", "--no-such-flag")
    assert done.returncode == 2, done.stderr


def test_the_engines_layer_finds_what_is_missing_without_an_engine() -> None:
    with built("engine") as image:
        assert (image.config["Entrypoint"], image.config["Cmd"]) == (["kvpp-entrypoint"], ["preflight"])
        done = image.run("kvpp-entrypoint", "preflight", "--want", '{"npus": 8}')
        assert done.returncode == 1, done.stderr
        assert "error    torch_npu" in done.stdout
        imported = image.run("kvpp-entrypoint", "python3", "-c", "import kubernetes")
        assert imported.returncode == 0, imported.stderr
