"""One request to the API server and its answer: slots, timeouts, short retries, and what went wrong in one error type.

Plain aiohttp was the fastest of six clients measured and does not double the process's memory (docs/adr).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, Self

import aiohttp

from kvpp_operator.cluster.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvpp_operator.cluster.access import Access
    from kvpp_operator.manifest import Kind, Manifest

ATTEMPTS = 4
BACKOFF_SECONDS = 0.2
RETRY_AFTER_LIMIT_SECONDS = 10.0
TRANSIENT = frozenset({0, 408, 429, 500, 502, 503, 504})
JSON = "application/json"
NO_SUCH_API = "NoSuchAPI"
# Said by a group that has lost its resource; a group that never was answers in plain text.
UNKNOWN_RESOURCE = "the server could not find the requested resource"
# An apply with a field that the schema does not have, or a value of another type: an internal error by its status, but the
# same object is refused for ever (structured-merge-diff; seen with Kubernetes 1.36).
WRONG_SHAPE = ("failed to create typed patch object", "failed to convert new object")


# Inside a quoted YAML text these break the line, or are refused as unprintable; escaped they are themselves.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def encode(body: Manifest | Sequence[Manifest]) -> bytes:
    """JSON that a YAML parser reads as the same: apply patches go through one, which knows no surrogate pairs."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


class ClusterError(Exception):
    """The API server refused a call, or did not answer.

    `status` is the HTTP status (0: no answer), `reason` the server's CamelCase reason, the message the server's own.
    `transient` errors may go away by themselves; the others wait for a change of the object or of the cluster.
    `fields` are the paths that an Invalid answer complains about.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after_seconds: float = 0.0,
        fields: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.transient = status in TRANSIENT
        self.retry_after_seconds = retry_after_seconds
        self.fields = fields


class Observer(Protocol):
    """Told about each attempt; status 0 stands for no answer."""

    def __call__(self, verb: str, kind: str, status: int, seconds: float) -> None: ...


def unobserved(verb: str, kind: str, status: int, seconds: float) -> None:
    """Observe nothing: the CLI has no metrics."""


class Transport:
    """Requests with a bound on their number, their time and their repetitions."""

    def __init__(
        self, access: Access, *, concurrency: int, timeout_seconds: float, attempts: int, observe: Observer
    ) -> None:
        self._access = access
        self._slots = asyncio.Semaphore(concurrency)
        self._limit = concurrency
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=min(5.0, timeout_seconds))
        self._attempts = attempts
        self._observe = observe
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = await self._access.session(limit=self._limit)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        kind: Kind,
        path: str,
        body: Manifest | Sequence[Manifest] | None = None,
        query: dict[str, str] | None = None,
        *,
        content: str = JSON,
        accept: str = JSON,
        verb: str = "",
    ) -> Manifest:
        """Send until there is an answer or patience ends.  Raises `ClusterError`.

        All verbs are repeated: each is either idempotent, or meets its own lost success as a conflict.
        """
        data = None if body is None else encode(body)
        params = {name: value for name, value in (query or {}).items() if value}
        headers = {"Accept": accept, **({"Content-Type": content} if data is not None else {})}
        for attempt in range(self._attempts):
            started = time.monotonic()
            try:
                async with self._slots:
                    status, answer = await self._send(method, path, data, params, headers)
            except ClusterError as error:
                self._observe(verb or method, kind.name, error.status, time.monotonic() - started)
                if not error.transient or attempt + 1 == self._attempts:
                    raise
                backoff = BACKOFF_SECONDS * 2**attempt * random.uniform(0.8, 1.2)  # noqa: S311 - no secret hangs on it
                await asyncio.sleep(max(backoff, error.retry_after_seconds))
            else:
                self._observe(verb or method, kind.name, status, time.monotonic() - started)
                return answer
        raise AssertionError("the last attempt returns or raises")

    async def _send(
        self, method: str, path: str, data: bytes | None, params: dict[str, str], headers: dict[str, str]
    ) -> tuple[int, Manifest]:
        assert self._session is not None, "use as a context manager"
        try:
            async with self._session.request(
                method,
                self._access.credentials.server + path,
                data=data,
                params=params,
                headers=headers,
                timeout=self._timeout,
                ssl=await self._access.ssl_context(),
            ) as response:
                raw = await response.read()
        except TimeoutError:
            raise ClusterError(0, "Timeout", f"no answer from the API server in {self._timeout.total:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterError(0, "Unreachable", f"cannot reach the API server: {error}") from error
        except KubeconfigError as error:
            raise ClusterError(0, "Credentials", str(error)) from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _error(response, raw)
        try:
            return response.status, json.loads(raw)
        except ValueError as error:
            raise ClusterError(0, "Garbled", f"the answer to {method} {path} is no JSON") from error


def _error(response: aiohttp.ClientResponse, raw: bytes) -> ClusterError:
    fields: frozenset[str] = frozenset()
    try:
        status = json.loads(raw)
        reason, message = status.get("reason") or "", status.get("message") or ""
        causes = (status.get("details") or {}).get("causes") or ()
        fields = frozenset(cause.get("field", "") for cause in causes)
    except (ValueError, AttributeError):  # a proxy in between speaks HTML
        reason, message = "", raw[:256].decode(errors="replace").strip()
    try:
        retry_after = min(max(float(response.headers.get("Retry-After", 0)), 0.0), RETRY_AFTER_LIMIT_SECONDS)
    except ValueError:  # the form with a date, which proxies may send
        retry_after = 1.0
    if response.status == HTTPStatus.NOT_FOUND and (not reason or message == UNKNOWN_RESOURCE):
        reason, message = NO_SUCH_API, f"the cluster does not serve this API: {response.url.path}"
    message = message or f"{response.status} {response.reason}"
    status_code = response.status
    if status_code == HTTPStatus.INTERNAL_SERVER_ERROR and message.startswith(WRONG_SHAPE):
        status_code, reason = HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid"
    return ClusterError(status_code, reason, message, retry_after_seconds=retry_after, fields=fields)
