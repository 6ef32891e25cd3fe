"""Fixtures for tests against the local cluster; a conftest.py names this module in `pytest_plugins`."""

from __future__ import annotations

import secrets
import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from kvpp_devcluster.cluster import LocalCluster
from kvpp_devcluster.controlplane import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE_SECONDS = 30.0


@pytest.fixture(scope="session")
def local_cluster(pytestconfig: pytest.Config) -> Iterator[LocalCluster]:
    """Give the session's cluster: control plane and `DEFAULT_GROUPS` of nodes; `start_lws()` adds LeaderWorkerSet."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(message: str) -> None:
        with capture.global_and_fixture_disabled():  # a first build takes minutes: show that it goes on
            print(message, file=sys.stderr, flush=True)

    with LocalCluster(say=say) as cluster:
        yield cluster


@pytest.fixture
def namespace(local_cluster: LocalCluster) -> Iterator[str]:
    """Give an empty namespace where pods are admitted; afterwards its pods are gone and its NPUs free again."""
    plane = local_cluster.control_plane
    name = f"test-{secrets.token_hex(4)}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    _wait_for_default_service_account(local_cluster, name)
    yield name
    try:
        plane.request("DELETE", f"/api/v1/namespaces/{name}")  # from now on no controller can make pods in it
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:  # the test may have deleted it
            raise
    deadline = time.monotonic() + NAMESPACE_SECONDS
    # The namespace controller lets five seconds pass before it deletes the content; the next test need not wait.
    while local_cluster.get(f"/api/v1/namespaces/{name}/pods")["items"]:
        plane.request("DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
        assert time.monotonic() < deadline, f"pods are left in namespace {name}"
        time.sleep(0.05)


def _wait_for_default_service_account(cluster: LocalCluster, namespace: str) -> None:
    """Wait for kube-controller-manager to make it: no pod is admitted before."""
    deadline = time.monotonic() + NAMESPACE_SECONDS
    while True:
        try:
            cluster.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        except ApiError as error:
            if error.status != 404 or time.monotonic() > deadline:  # noqa: PLR2004  (Not Found)
                raise
            time.sleep(0.02)
        else:
            return
