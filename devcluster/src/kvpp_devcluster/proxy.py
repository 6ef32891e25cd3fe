"""A proxy between a client under test and the API server, which counts requests and can act at the k-th write.

Plain http on loopback in front; TLS and the given credentials behind.  Watches stream through.  What a test does with
it: kill the client right before, or right after, its k-th write took effect.

    async with WriteProxy(server, ca=ca, client_cert=cert, client_key=key) as proxy:
        proxy.on_write = lambda write, moment: kill() if (write.number, moment) == (3, Moment.ANSWERED) else None
        start_client(proxy.url)
"""

from __future__ import annotations

import asyncio
import enum
import inspect
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import parse_qs

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from kvpp_devcluster import kubeconfig
from kvpp_devcluster.kubeconfig import Access

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

BODY_LIMIT = 16 * 2**20  # bytes; the API server itself refuses bodies above 3 MiB
WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# Created, answered and forgotten: these requests change nothing in the cluster.
QUESTIONS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
NAMESPACE_SUBRESOURCES = ("status", "finalize")
# Headers of one connection only (RFC 9110, section 7.6.1), and those that each side computes itself.
NOT_FORWARDED = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)


class Moment(enum.Enum):
    """When `on_write` is called."""

    RECEIVED = "received"  # the client has sent the whole request, the server has not seen it
    ANSWERED = "answered"  # the server has done it, the client does not know yet


class Drop(Exception):  # noqa: N818  (a wish, not a failure)
    """Raised by `on_write`: close the client's connection without an answer; at RECEIVED the server gets nothing."""


@dataclass
class Write:
    """One write in the order of arrival; `status` is 0 until the server has answered."""

    number: int  # 1 is the first
    verb: str  # POST, PUT, PATCH or DELETE
    path: str
    resource: str  # as in `WriteProxy.requests`
    body: bytes
    status: int = 0


OnWrite: TypeAlias = "Callable[[Write, Moment], Awaitable[None] | None]"


class WriteProxy:
    """One proxy in front of one API server; runs in the event loop of the test.

    `requests` counts by (verb, resource) in Kubernetes' own words, such as ("watch", "pods") or
    ("patch", "pods/status"); `writes` lists what may change the cluster (not: dry runs, access reviews).
    """

    def __init__(
        self,
        server: str,
        *,
        ca: Path | None = None,
        client_cert: Path | None = None,
        client_key: Path | None = None,
        token: str | None = None,
    ) -> None:
        self._access = Access(server, ca, client_cert, client_key, token)
        self._forwards: set[asyncio.Task[web.StreamResponse]] = set()
        self.url = ""
        self.writes: list[Write] = []
        self.requests: Counter[tuple[str, str]] = Counter()
        self.on_write: OnWrite | None = None

    @classmethod
    def of(cls, path: Path) -> Self:
        """Make one that is, towards the server, what a kubeconfig file says."""
        access = kubeconfig.read(path)
        return cls(
            access.server,
            ca=access.ca,
            client_cert=access.client_certificate,
            client_key=access.client_key,
            token=access.token,
        )

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig for the client under test: the proxy's URL and no credentials."""
        return kubeconfig.write(path, Access(self.url))

    async def __aenter__(self) -> Self:
        tls: ssl.SSLContext | bool = self._access.ssl_context() or True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
        )
        application = web.Application(client_max_size=BODY_LIMIT)
        application.router.add_route("*", "/{path:.*}", self._handle)
        # Cancelled with its client, or a watch would hang here until the server ends it.
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        _, port = self._runner.addresses[0][:2]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self.settled()
        await self._session.close()

    async def settled(self) -> None:
        """Wait until the server has answered every write that arrived, also those of a client that is gone."""
        while self._forwards:
            await asyncio.gather(*self._forwards, return_exceptions=True)

    def forget(self) -> None:
        """Count from zero again."""
        self.writes.clear()
        self.requests.clear()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        verb, resource = classify(request.method, request.path, request.query_string)
        self.requests[verb, resource] += 1
        body = await request.read()
        try:
            if not is_write(request.method, request.path, request.query_string):
                return await self._forward(request, body, None)
            write = Write(len(self.writes) + 1, request.method, request.path, resource, body)
            self.writes.append(write)
            # A task of its own: what a client sent before it died reaches the server, as without a proxy.
            forward = asyncio.create_task(self._forward(request, body, write))
            self._forwards.add(forward)
            forward.add_done_callback(self._forwards.discard)
            return await asyncio.shield(forward)
        except (Drop, aiohttp.ClientError, ConnectionError):
            if request.transport:
                request.transport.abort()  # what the client would see of a server that dies
            return web.Response(status=HTTPStatus.BAD_GATEWAY)

    async def _forward(self, request: web.Request, body: bytes, write: Write | None) -> web.StreamResponse:
        if write:
            await self._tell(write, Moment.RECEIVED)
        url = URL(self._access.server + request.raw_path, encoded=True)
        headers = _end_to_end(request.headers)
        headers.update(self._access.headers())
        async with self._session.request(
            request.method, url, data=body, headers=headers, allow_redirects=False
        ) as answer:
            if write:
                content = await answer.read()
                write.status = answer.status
                await self._tell(write, Moment.ANSWERED)
                return web.Response(status=answer.status, headers=_end_to_end(answer.headers), body=content)
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _tell(self, write: Write, moment: Moment) -> None:
        if self.on_write:
            result = self.on_write(write, moment)
            if inspect.isawaitable(result):
                await result


def classify(method: str, path: str, query: str) -> tuple[str, str]:
    """Name a request as RBAC does: verb, and plural with subresource; (method, path) for what is no resource.

    >>> classify("GET", "/apis/apps/v1/namespaces/ns/deployments", "watch=1")
    ('watch', 'deployments')
    """
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if not rest:
        return method.lower(), path
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:  # noqa: PLR2004
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:3]])
    is_one = len(rest) > 1
    if method == "GET":
        is_watch = parse_qs(query).get("watch", ["false"])[0] in ("1", "true")
        return "watch" if is_watch else "get" if is_one else "list", resource
    if method == "DELETE":
        return "delete" if is_one else "deletecollection", resource
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method.lower()), resource


def is_write(method: str, path: str, query: str) -> bool:
    """Say whether a request may change what the cluster stores."""
    group = path.strip("/").split("/")[1:2]
    return method in WRITING and "dryRun" not in parse_qs(query) and not QUESTIONS.intersection(group)


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    # Not a dict: the API server sends a Warning header for each warning.
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in NOT_FORWARDED)
