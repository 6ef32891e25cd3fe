"""Simulated nodes with NPUs: they register, renew their leases and play the kubelet for the pods bound to them.

The cluster itself is the remote control, so kubectl and every client can use it:

- any Node labelled `devcluster.kvpp.io/simulated=true` is played, whoever creates it; its annotation
  `devcluster.kvpp.io/capacity` (a JSON object) adds to its capacity;
- annotation `devcluster.kvpp.io/lost=true` makes it fall silent like a host without power: no lease, no pod status;
  taking the annotation away brings it back;
- a deleted Node is gone, and its pods are left to the garbage collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from kvpp_devcluster import nodestatus
from kvpp_devcluster.addresses import Addresses
from kvpp_devcluster.api import MERGE, STRATEGIC_MERGE, Api, Refused, warn
from kvpp_devcluster.faults import PREFIX
from kvpp_devcluster.kubelet import ENDED, SimulatedPod, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvpp_devcluster.kubeconfig import Access

SIMULATED, LOST = f"{PREFIX}simulated", f"{PREFIX}lost"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HEARTBEAT_SECONDS = 4.0


@dataclass(frozen=True)
class NodeGroup:
    """`count` equal nodes, called `<name>-0` and so on."""

    name: str
    count: int
    resources: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def manifests(self) -> list[dict[str, Any]]:
        names = [f"{self.name}-{index}" for index in range(self.count)]
        return [node_manifest(name, resources=self.resources, labels=self.labels) for name in names]


def parse_group(text: str) -> NodeGroup:
    """Read `name=950,count=4,resource=huawei.com/npu:8,label=KEY:VALUE`; resource and label may come repeatedly.

    Raises ValueError that names the part which is wrong.
    """
    name, count = "", 1
    pairs: dict[str, dict[str, str]] = {"resource": {}, "label": {}}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key == "name":
            name = value
        elif key == "count" and value.isdecimal():
            count = int(value)
        elif key in pairs and ":" in value:
            left, _, right = value.rpartition(":")
            pairs[key][left] = right
        else:
            raise ValueError(f"node group {text!r}: {part!r} is none of name=NAME, count=N, resource=R:N, label=K:V")
    if not name:
        raise ValueError(f"node group {text!r} has no name=")
    return NodeGroup(name, count, resources=pairs["resource"], labels=pairs["label"])


def format_group(group: NodeGroup) -> str:
    """Write a group as `parse_group` reads it."""
    resources = [f"resource={name}:{quantity}" for name, quantity in group.resources.items()]
    labels = [f"label={key}:{value}" for key, value in group.labels.items()]
    return ",".join([f"name={group.name}", f"count={group.count}", *resources, *labels])


def node_manifest(name: str, *, resources: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, Any]:
    """Build a Node that the simulation will play."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "arm64",
                SIMULATED: "true",
                **labels,
            },
            "annotations": {nodestatus.CAPACITY: json.dumps(dict(resources))},
        },
    }


class SimulatedNodes:
    """Plays all simulated nodes of a cluster.  To be used as `async with SimulatedNodes(access, groups)`."""

    def __init__(
        self, access: Access, groups: Sequence[NodeGroup] = (), *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self._api = Api(access)
        self._groups = groups
        self._heartbeat_seconds = heartbeat_seconds
        self._nodes: dict[str, dict[str, Any]] = {}  # as last seen, by name
        self._pods: dict[str, dict[str, Any]] = {}  # as last seen, by uid: all that are bound, on any node
        self._lives: dict[str, SimulatedPod] = {}  # by the pod's uid
        self._offered: dict[str, dict[str, str]] = {}  # capacity by the node's uid
        self._addresses = Addresses()

    async def __aenter__(self) -> Self:
        await self._api.__aenter__()
        for path in ("/api/v1/nodes", "/api/v1/pods"):  # all that are in use, before the first new one is given away
            for item in (await self._api.call("GET", path))["items"]:
                self._addresses.note(item)
        for group in self._groups:
            await asyncio.gather(*(self.add(manifest) for manifest in group.manifests()))
        self._loops = [asyncio.create_task(loop()) for loop in (self._follow_nodes, self._follow_pods, self._beat)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._loops:
            task.cancel()
        for life in self._lives.values():
            life.stop()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._api.__aexit__()

    async def run(self) -> None:
        """Play until cancelled; raises what ends one of the loops."""
        await asyncio.gather(*self._loops)

    async def add(self, manifest: dict[str, Any]) -> None:
        """Create a Node; one of that name which exists already stays as it is."""
        with contextlib.suppress(Refused):
            await self._api.call("POST", "/api/v1/nodes", manifest)

    async def lose(self, name: str) -> None:
        """Let a node fall silent; kube-controller-manager finds out after its grace period."""
        await self._annotate(name, {LOST: "true"})

    async def bring_back(self, name: str) -> None:
        await self._annotate(name, {LOST: None})

    async def delete(self, name: str) -> None:
        await self._api.call("DELETE", f"/api/v1/nodes/{name}")

    async def _annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        patch = {"metadata": {"annotations": annotations}}
        await self._api.call("PATCH", f"/api/v1/nodes/{name}", patch, content_type=MERGE)

    async def _follow_nodes(self) -> None:
        async for kind, node in self._api.watch("/api/v1/nodes", f"labelSelector={SIMULATED}%3Dtrue"):
            name = node["metadata"]["name"]
            if kind == "DELETED":
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = node
                if not _is_lost(node):
                    await self._make_ready(node)
            self._match_lives(name)

    async def _make_ready(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        uid, capacity = node["metadata"]["uid"], nodestatus.capacity(node)
        # Compared with what was offered, not with the status: the server writes quantities in its own way.
        if nodestatus.is_ready(node) and self._offered.get(uid) == capacity:
            return
        self._offered[uid] = capacity
        await self._renew(node)  # before Ready, or the node lifecycle controller sees a stale lease first
        patch = nodestatus.build(node, self._addresses.of_node(name), now=timestamp())
        try:
            await self._api.call(
                "PATCH", f"/api/v1/nodes/{name}/status", {"status": patch}, content_type=STRATEGIC_MERGE
            )
        except Refused as refused:
            warn(f"node {name}: {refused}")

    async def _beat(self) -> None:
        while True:
            await asyncio.gather(*(self._renew(node) for node in self._nodes.values() if not _is_lost(node)))
            await asyncio.sleep(self._heartbeat_seconds)

    async def _renew(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        lease = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
        try:
            await self._api.call("PATCH", f"{LEASES}/{name}", lease, content_type=MERGE)
        except Refused:
            with contextlib.suppress(Refused):  # the node was deleted meanwhile
                await self._api.call("POST", LEASES, lease)

    async def _follow_pods(self) -> None:
        async for kind, pod in self._api.watch("/api/v1/pods", "fieldSelector=spec.nodeName!%3D"):
            uid = pod["metadata"]["uid"]
            if kind == "DELETED":
                self._pods.pop(uid, None)
                self._addresses.release(uid)
            else:
                self._pods[uid] = pod
            self._match_life(uid)

    def _match_lives(self, node: str) -> None:
        for uid, pod in list(self._pods.items()):
            if pod["spec"]["nodeName"] == node:
                self._match_life(uid)

    def _match_life(self, uid: str) -> None:
        """Give the pod a life exactly while it and its node exist, the node is up, and the pod has not ended."""
        pod, life = self._pods.get(uid), self._lives.get(uid)
        node = self._nodes.get(pod["spec"]["nodeName"]) if pod else None
        if pod is None or node is None or _is_lost(node):
            if life:
                self._lives.pop(uid).stop()
        elif life:
            life.update(pod)
        elif "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") not in ENDED:
            host = self._addresses.of_node(node["metadata"]["name"])
            own = host if pod["spec"].get("hostNetwork") else self._addresses.of_pod(pod)
            self._lives[uid] = SimulatedPod(self._api, pod, {"pod": own, "host": host})


def _is_lost(node: dict[str, Any]) -> bool:
    return LOST in node["metadata"].get("annotations", {})
