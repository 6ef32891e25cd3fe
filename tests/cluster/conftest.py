"""A client of the local control plane and a namespace of one's own."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import load
from kvpp_operator.manifest import API_VERSION, DEPLOYMENTS, KIND, Key, Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

CRDS = Path(__file__).parents[2] / "crds"
NUMBERS = itertools.count()


async def eventually(question: Callable[[], Awaitable[Any]], *, seconds: float = 20.0) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            if answer := await question():
                return answer
            await asyncio.sleep(0.05)


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., Awaitable[Any]]:
    """Ask again until the answer is true: for what the cluster's own controllers do in their time."""
    return eventually


@pytest.fixture
def access(local_cluster: Any) -> Access:
    return Access(lambda: load(str(local_cluster.kubeconfig)))


@pytest.fixture
async def cluster(access: Access) -> AsyncIterator[Cluster]:
    async with Cluster(access) as client:
        for path in sorted(CRDS.glob("*.yaml")):
            await client.apply(yaml.safe_load(path.read_text()))
        await eventually(lambda: client.serves(DEPLOYMENTS))
        yield client


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    name = f"shell-{os.getpid()}-{next(NUMBERS)}"
    created = await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await cluster.delete(Key("v1", "Namespace", "", name), uid=created["metadata"]["uid"])


@pytest.fixture
def deployment(namespace: str) -> Callable[..., Manifest]:
    """Build the smallest KVPPDeployment that a user may write."""

    def build(name: str = "glm", replicas: int = 1) -> Manifest:
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "model": {"profile": "GLM-5.2", "source": {"persistentVolumeClaim": {"claimName": "w", "path": "m"}}},
                "engine": {"version": "0.30.0rc2"},
                "accelerator": {"chip": "950DT"},
                "unified": {"replicas": replicas, "parallelism": {"tensor": 8, "expert": True}},
            },
        }

    return build
