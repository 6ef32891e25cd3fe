"""An operator with a reconcile of a few lines: one ConfigMap and as many Deployments as `spec.unified.replicas` says."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.cluster.apply import apply, apply_status
from kvpp_operator.controller.logs import set_up
from kvpp_operator.controller.run import RunSettings, run
from kvpp_operator.manifest import DeploymentKey, Manifest, Owner, stamp

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster


def wished(owner: Owner, replicas: int) -> list[Manifest]:
    def of(api_version: str, kind: str, name: str, **content: object) -> Manifest:
        meta = {"name": f"{owner.key.name}-{name}", "namespace": owner.key.namespace}
        manifest = {"apiVersion": api_version, "kind": kind, "metadata": meta, **content}
        return stamp(manifest, labels={names.DEPLOYMENT: owner.key.name}, owner=owner)

    labels = {names.DEPLOYMENT: owner.key.name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "image": "example.com/vllm"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    engines = [of("apps/v1", "Deployment", f"u{number}", spec=spec) for number in range(replicas)]
    return [of("v1", "ConfigMap", "settings", data={"replicas": str(replicas)}), *engines]


async def reconcile(key: DeploymentKey, cache: Cache, cluster: Cluster) -> float | None:
    body = cache.deployment(key)
    if body is None or body["metadata"].get("deletionTimestamp"):
        return None
    owner = Owner.of(body)
    applied = await apply(cluster, cache, owner, wished(owner, body["spec"]["unified"].get("replicas", 1)))
    generation = body["metadata"]["generation"]
    await apply_status(cluster, cache, body, {"observedGeneration": generation, **conditions(applied.is_complete)})
    return None if applied.is_complete else 1.0


def conditions(ready: bool) -> Manifest:  # noqa: FBT001
    condition = {"type": "Ready", "status": str(ready), "reason": "Tiny", "message": "", "observedGeneration": 1}
    return {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}


if __name__ == "__main__":
    set_up("DEBUG")
    namespaces = tuple(sys.argv[1:])
    settings = RunSettings(
        namespaces=namespaces,
        listen="127.0.0.1:0",
        listening=lambda host, port: print(f"http://{host}:{port}", flush=True),
    )
    asyncio.run(run(reconcile, settings))
