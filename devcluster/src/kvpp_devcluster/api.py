"""A small asyncio client of the API server that outlives the server's restarts."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Self

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kvpp_devcluster.kubeconfig import Access

MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500
WATCH_SECONDS = 300
# An error that only a repeated try can cure: the server is away, overloaded, or still starting.
TRANSIENT = (aiohttp.ClientError, TimeoutError, ConnectionError)


class Refused(RuntimeError):  # noqa: N818  (who is at fault: the request)
    """The server understood the request and will not do it; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """One pool of connections.  To be used as `async with Api(access) as api`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def __aenter__(self) -> Self:
        tls = self._access.ssl_context()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls or True, limit=32),
            headers={"User-Agent": "kvpp-devcluster", **self._access.headers()},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """Send a request until the server answers it; raises Refused for an answer of 4xx other than 429."""
        delay = 0.05
        data = None if body is None else json.dumps(body)
        while True:
            try:
                async with self._session.request(
                    method, self._access.server + path, data=data, headers={"Content-Type": content_type}
                ) as answer:
                    text = await answer.text()
                if answer.ok:
                    return json.loads(text)
                if answer.status < SERVER_ERROR and answer.status != TOO_MANY_REQUESTS:
                    raise Refused(answer.status, text)
            except TRANSIENT:
                pass  # the loop is the handling
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)

    async def watch(self, path: str, query: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield (ADDED | MODIFIED | DELETED, object) for ever, starting with all objects that exist.

        After a gap that the server cannot fill, objects that still exist come as ADDED again and those that went in
        the meantime as DELETED, in the form last seen.
        """
        known: dict[str, dict[str, Any]] = {}
        while True:
            listed = await self.call("GET", f"{path}?{query}")
            now = {item["metadata"]["uid"]: item for item in listed["items"]}
            for uid in known.keys() - now.keys():
                yield "DELETED", known[uid]
            known = now
            for item in list(known.values()):
                yield "ADDED", item
            async for kind, item in self._events(path, query, listed["metadata"]["resourceVersion"]):
                if kind == "DELETED":
                    known.pop(item["metadata"]["uid"], None)
                else:
                    known[item["metadata"]["uid"]] = item
                yield kind, item

    async def _events(self, path: str, query: str, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Watch from `version` on, over any number of connections, until the server cannot continue from there."""
        while True:
            url = f"{self._access.server}{path}?{query}&watch=1&allowWatchBookmarks=true&resourceVersion={version}"
            timeout = aiohttp.ClientTimeout(total=None, sock_read=WATCH_SECONDS + 30)
            try:
                async with self._session.get(f"{url}&timeoutSeconds={WATCH_SECONDS}", timeout=timeout) as answer:
                    if not answer.ok:
                        return
                    async for line in _lines(answer.content):
                        event = json.loads(line)
                        if event["type"] == "ERROR":  # mostly 410 Gone
                            return
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event["type"], event["object"]
            except TRANSIENT:
                await asyncio.sleep(0.2)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    # Not `async for line in content`: that refuses lines above its buffer's size, and objects may be 1.5 MB.
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def warn(message: str) -> None:
    """Say something in the log of the process."""
    print(message, file=sys.stderr, flush=True)
