"""Where the operator reads how a router pod stands: it never talks to pods, so pods write it down.

One key per pod in a ConfigMap that the operator makes; the router's Role names that one object and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kvpp_operator.cluster.client import Cluster, Patch
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import Key

if TYPE_CHECKING:
    from kvpp_operator.cluster.access import Access
    from kvpp_operator.router.standing import Report

log = logging.getLogger(__name__)

MANAGER = "kvpp-router"
PAUSE_SECONDS = 1.0
"""Between two writes: a flapping engine must not become a flood of writes."""

RETRY_SECONDS = 5.0
LAST_WORD_SECONDS = 3.0


class Reporter:
    """Writes the newest report whenever it differs from the one written last."""

    def __init__(self, access: Access, namespace: str, config_map: str, pod: str) -> None:
        self._access = access
        self._key = Key("v1", "ConfigMap", namespace, config_map)
        self._pod = pod
        self._newest: str | None = None
        self._news = asyncio.Event()

    def publish(self, report: Report) -> None:
        text = report.text()
        if text != self._newest:
            self._newest = text
            self._news.set()

    async def write(self) -> None:
        """Write, for ever; at the end the pod's key goes."""
        async with Cluster(self._access, attempts=1) as cluster:
            try:
                while True:
                    await self._news.wait()
                    self._news.clear()
                    if not await self._put(cluster, self._newest):
                        self._news.set()
                        await asyncio.sleep(RETRY_SECONDS)
                    await asyncio.sleep(PAUSE_SECONDS)
            finally:
                await asyncio.wait_for(self._put(cluster, None), LAST_WORD_SECONDS)

    async def _put(self, cluster: Cluster, text: str | None) -> bool:
        try:
            await cluster.patch(self._key, {"data": {self._pod: text}}, form=Patch.MERGE, manager=MANAGER)
        except ClusterError as error:
            log.warning("report: %s", error)
            return False
        return True
