"""What routers leave behind: a pod that was killed can't take its words out of the report."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.cluster.client import Patch
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import Key
from kvpp_operator.report.router import stale

if TYPE_CHECKING:
    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.manifest import DeploymentKey

logger = logging.getLogger(__name__)

MANAGER = "kvpp-router"
"""Of the agents, whose fields these are."""


async def tidy(cluster: Cluster, cache: Cache, key: DeploymentKey) -> None:
    """Take out keys of pods that are gone, once there are many: one at a time might be of a pod that we hear of next."""
    report = Key("v1", "ConfigMap", key.namespace, names.part(key.name, names.ROUTER))
    gone = stale(cache.get(report) or {}, cache.pods(key))
    if not gone:
        return
    try:
        await cluster.patch(report, {"data": dict.fromkeys(gone)}, form=Patch.MERGE, manager=MANAGER)
    except ClusterError as error:
        logger.warning("cannot tidy", extra={"object": str(report), "problem": error.message})
