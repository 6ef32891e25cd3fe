"""List, then watch: the newest state of a few objects, for ever, through outages of the API server.

What was seen last stays true while the server is away: a control plane that restarts stops no traffic.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

from kvpp_operator.cluster.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kvpp_operator.cluster.access import Access
    from kvpp_operator.manifest import Manifest

log = logging.getLogger(__name__)

WATCH_SECONDS = 300
"""The server ends a watch after that; a dead connection is noticed a little later."""

BACKOFF_SECONDS = (0.5, 10.0)
LIST_PATIENCE = aiohttp.ClientTimeout(total=15.0)
LINE_LIMIT = 4 * 2**20

State = dict[str, "Manifest"]
"""Objects by name."""


class Relist(Exception):  # noqa: N818 - not an error
    """The watch can't go on from where it is: list again."""


class Watch:
    """One collection of the API, narrowed by a selector; `path` as in `/api/v1/namespaces/x/services`."""

    def __init__(self, access: Access, path: str, *, labels: str = "", fields: str = "") -> None:
        self._access = access
        self._path = path
        self._query = {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}

    async def follow(self, changed: Callable[[State], None]) -> None:
        """Hand over the whole state after the list and after every change, for ever."""
        shortest, longest = BACKOFF_SECONDS
        backoff = shortest
        while True:
            try:
                async with await self._access.session() as session:
                    async for state in self._states(session):
                        backoff = shortest
                        changed(state)
            except Relist:
                log.info("%s: listing again", self._path)
                await asyncio.sleep(shortest)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, KubeconfigError) as error:
                log.warning("%s: %s: %s; trying again in %.1f s", self._path, type(error).__name__, error, backoff)
                await asyncio.sleep(backoff * random.uniform(0.8, 1.2))  # noqa: S311 - no secret hangs on it
                backoff = min(backoff * 2, longest)

    async def _states(self, session: aiohttp.ClientSession) -> AsyncIterator[State]:
        state, version = await self._list(session)
        yield dict(state)
        while True:
            query = {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(WATCH_SECONDS),
            }
            async for event in self._events(session, query):
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED":
                    state.pop(name, None)
                else:
                    state[name] = event["object"]
                yield dict(state)

    async def _list(self, session: aiohttp.ClientSession) -> tuple[State, str]:
        async with session.get(self._url, params=self._query, timeout=LIST_PATIENCE) as response:
            response.raise_for_status()
            found = await response.json()
        return {item["metadata"]["name"]: item for item in found.get("items") or ()}, found["metadata"][
            "resourceVersion"
        ]

    async def _events(self, session: aiohttp.ClientSession, query: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        patience = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=WATCH_SECONDS + 10.0)
        async with session.get(
            self._url, params={**self._query, **query}, timeout=patience, read_bufsize=LINE_LIMIT
        ) as response:
            if response.status == HTTPStatus.GONE:
                raise Relist
            response.raise_for_status()
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Relist
                yield event

    @property
    def _url(self) -> str:
        return self._access.credentials.server + self._path
