"""What we watch, and whether the API server still answers there.

The watcher does not say when a list is complete, nor that it lives; but its requests pass through a session of ours.
A watch is renewed every five minutes, and at once when its connection breaks, so its last request tells its state.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from kvpp_operator import names
from kvpp_operator.cluster.client import collection_of
from kvpp_operator.manifest import DEPLOYMENTS, LEDGERS, NAMESPACES, PODS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import aiohttp
    from aiohttp.client_middlewares import ClientHandlerType

logger = logging.getLogger(__name__)

RENEWAL_SECONDS = 300
"""How long a watch may last: the server ends it, and the watcher opens the next."""

NOT_STARTED = "has not started"
STALE_SECONDS = 2 * RENEWAL_SECONDS


@dataclass(slots=True)
class Stream:
    """One list-and-watch: a kind, cluster-wide (`namespace` is "") or in one namespace."""

    kind: Kind
    namespace: str = ""
    problem: str = NOT_STARTED  # "" while the server answers
    renewed_at: float = 0.0
    lists: int = 0

    def __str__(self) -> str:
        return f"{self.kind.plural} in {self.namespace}" if self.namespace else self.kind.plural

    @property
    def labels(self) -> str:
        return labels_of(self.kind)


def labels_of(kind: Kind) -> str:
    """Selector by which the server filters: all deployments and namespaces, the ledger, pods that name a deployment, and of
    the rest what is ours.
    """
    if kind in (DEPLOYMENTS, LEDGERS, NAMESPACES):
        return ""
    return names.DEPLOYMENT if kind == PODS else f"{names.MANAGED_BY}={names.FIELD_MANAGER}"


class Streams:
    """All streams of one run of the watcher.  `on_relist` is called from the watcher's thread."""

    def __init__(
        self,
        kinds: Iterable[Kind],
        namespaces: tuple[str, ...] = (),
        *,
        on_relist: Callable[[Stream], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kinds = tuple(kinds)
        self.namespaces = namespaces
        self._on_relist = on_relist
        self._clock = clock
        self._by_path = {
            collection_of(kind, namespace): Stream(kind, namespace if kind.namespaced else "")
            for kind in self.kinds
            for namespace in (namespaces or ("",))
        }

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._by_path.values())

    def problems(self) -> tuple[str, ...]:
        """Say in words what is not watched just now; nothing if all is well."""
        now = self._clock()
        found = []
        for stream in self:
            age = now - stream.renewed_at
            if stream.problem:
                found.append(f"{stream}: {stream.problem}")
            elif age > STALE_SECONDS:
                found.append(f"{stream}: no sign of life for {age:.0f} s")
        return tuple(found)

    async def follow(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """Middleware of aiohttp: notes what becomes of the watcher's requests."""
        stream = self._by_path.get(request.url.path)
        if stream is None:
            return await handler(request)
        try:
            response = await handler(request)
        except Exception as error:
            self._lost(stream, f"cannot reach the API server ({type(error).__name__})")
            raise
        if response.status >= HTTPStatus.BAD_REQUEST:
            self._lost(stream, f"refused by the API server ({response.status} {response.reason})")
        elif "watch" in request.url.query:
            self._renewed(stream)
        elif "continue" not in request.url.query:
            stream.lists += 1
        return response

    def _lost(self, stream: Stream, problem: str) -> None:
        if stream.problem in ("", NOT_STARTED):  # once per loss, whatever becomes of the attempts
            logger.warning("watch lost", extra={"watch": str(stream), "problem": problem})
        stream.problem = problem

    def _renewed(self, stream: Stream) -> None:
        if stream.problem and stream.renewed_at:
            logger.info("watch is back", extra={"watch": str(stream)})
        stream.problem = ""
        stream.renewed_at = self._clock()
        if stream.lists > 1:  # a list brings no news of what was deleted before it
            stream.lists = 1
            self._on_relist(stream)
