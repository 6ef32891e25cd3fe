"""`--live`: what the cluster of KUBECONFIG holds of the deployments that are judged, and its port ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kvpp_operator import names
from kvpp_operator.cli.ports import Host, resource_names
from kvpp_operator.cluster.access import Access
from kvpp_operator.cluster.client import Cluster
from kvpp_operator.cluster.kubeconfig import KubeconfigError, load
from kvpp_operator.cluster.ledger import KEY
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.configuration import Configuration
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.ledger.live import holders, live_claims, signs
from kvpp_operator.ledger.wire import parse
from kvpp_operator.manifest import API_VERSION, KIND, KINDS, PODS, Key, Manifest, controller_of, key_of
from kvpp_operator.world import World

NOT_FOUND = 404


def worlds_of(bodies: Sequence[Any]) -> list[World]:
    """One world for each document, in their order; ClusterError or KubeconfigError when the cluster can't be read."""
    return asyncio.run(read_worlds(bodies))


def read_ports(node: str | None, configuration: Configuration) -> tuple[Ledger, Host | None]:
    """The ledger; with a node, what is known of it, None when there is no such node."""

    async def read() -> tuple[Ledger, Host | None]:
        async with Cluster(Access(load)) as cluster:
            ledger = await ledger_of(cluster)
            found = await cluster.get(Key("v1", "Node", "", node)) if node else None
            if found is None:
                return ledger, None
            pods = await listed(cluster, PODS, "", names.DEPLOYMENT)
            here = [pod for pod in pods if pod.get("spec", {}).get("nodeName") == node]
            return ledger, Host(found["metadata"]["name"], npus_of(found, configuration), holders(signs(here), ledger))

    return asyncio.run(read())


def npus_of(node: Manifest, configuration: Configuration) -> int | None:
    """NPUs that a node says it has; None when it names none that we know."""
    capacity = node.get("status", {}).get("capacity", {})
    return max((int(capacity[name]) for name in resource_names(configuration) if name in capacity), default=None)


async def read_worlds(bodies: Sequence[Any]) -> list[World]:
    async with Cluster(Access(load)) as cluster:
        ledger = await ledger_of(cluster)
        return [await world_of(cluster, body, ledger) for body in bodies]


async def ledger_of(cluster: Cluster) -> Ledger:
    try:
        found = await cluster.get(KEY)
    except ClusterError as problem:
        if problem.status != NOT_FOUND:
            raise
        return Ledger()
    return parse((found or {}).get("spec")).ledger


async def world_of(cluster: Cluster, body: Any, ledger: Ledger) -> World:
    """Empty but for the ledger when the deployment does not exist yet."""
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        return World(ledger=ledger)
    namespace, name = str(metadata.get("namespace") or "default"), metadata["name"]
    live = await cluster.get(Key(API_VERSION, KIND, namespace, name))
    if live is None:
        return World(ledger=ledger)
    marked = f"{names.DEPLOYMENT}={name}"
    owned: dict[Key, Manifest] = {}
    for kind in KINDS:
        for manifest in await listed(cluster, kind, namespace, marked):
            controller = controller_of(manifest)
            if controller is not None and controller["uid"] == live["metadata"]["uid"]:
                owned[key_of(manifest)] = manifest
    pods = tuple(await listed(cluster, PODS, namespace, marked))
    shown = signs((*owned.values(), *pods))
    return World(owned, pods, ledger, live_claims(owned.values()), shown, uid=live["metadata"]["uid"])


async def listed(cluster: Cluster, kind: Any, namespace: str, labels: str) -> list[Manifest]:
    try:
        return [item async for item in cluster.list(kind, namespace=namespace, labels=labels)]
    except ClusterError as problem:
        if problem.status != NOT_FOUND:  # an optional API that is absent holds nothing
            raise
        return []


__all__ = ["ClusterError", "KubeconfigError", "read_ports", "worlds_of"]
