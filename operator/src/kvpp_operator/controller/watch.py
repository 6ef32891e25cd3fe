"""kopf, which watches and nothing more: no handlers that keep state, no annotation, finalizer, peering or event of its.

It runs in a thread and an event loop of its own, because on its way out it cancels every task of the loop it lives in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import kopf

from kvpp_operator.controller.streams import RENEWAL_SECONDS, labels_of

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType

    from kvpp_operator.cluster.access import Access
    from kvpp_operator.controller.streams import Streams
    from kvpp_operator.manifest import Kind, Manifest

logger = logging.getLogger(__name__)

TakeIn = Callable[[str | None, "Manifest"], None]
"""Called with ADDED, MODIFIED, DELETED, or None for what a list holds, and the object."""

CHUNK = 500
# The server sends a bookmark a minute; a connection that died silently is noticed by their absence.
INACTIVITY_SECONDS = 75.0
STOP_SECONDS = 1.5
LOGIN_SECONDS = 2.0
HANG_UP_SECONDS = 0.5
INBOX_TURN = 50
# Only peering, which is off, would use it; left out, kopf asks for the name of a user who stands in no passwd file.
IDENTITY: Any = "kvpp-operator"


class WatchError(Exception):
    """The watcher has ended although nobody asked it to.  Start anew: what it missed is unknown."""


class Watch:
    """One run of the watcher over a fixed set of streams; `take_in` is called in the loop that started it."""

    def __init__(self, access: Access, streams: Streams, take_in: TakeIn) -> None:
        self._access = access
        self._streams = streams
        self._take_in = take_in
        self._home = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._logged_in = False
        self._sockets: list[socket.socket] = []
        self._inbox: deque[tuple[str | None, Manifest]] = deque()
        self._is_called = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def wait(self) -> None:
        """Wait for the end.  Raises `WatchError` unless `stop` brought it about."""
        await self._ended.wait()
        if self._failure is not None:
            raise WatchError(f"the watcher failed: {self._failure!r}") from self._failure

    async def stop(self) -> None:
        """End the watches; patience is short, since a daemon thread holds up nothing."""
        if self._loop is None or self._stop is None or self._ended.is_set():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._operate())
        except BaseException as error:  # noqa: BLE001 - whatever ended the thread, the main loop must hear of it
            self._failure = error
        self._call_home(self._ended.set)

    def _call_home(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the home loop is closed: nobody waits for news any more
            self._home.call_soon_threadsafe(what)

    def _send_home(self, event: str | None, thing: Manifest) -> None:
        """Put into the inbox; the home loop is woken once for all that comes while it is on its way to look."""
        self._inbox.append((event, thing))
        if not self._is_called:
            self._is_called = True
            self._call_home(self._read_inbox)

    def _read_inbox(self) -> None:
        self._is_called = False  # first: what is appended from now on calls again
        for _ in range(INBOX_TURN):
            if not self._inbox:
                return
            event, thing = self._inbox.popleft()
            try:
                self._take_in(event, thing)
            except Exception:  # one odd object must not hold up the others
                logger.exception("event not taken in", extra={"event": event, "object": thing.get("metadata")})
        self._home.call_soon(self._read_inbox)  # others have their turn in between

    async def _operate(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_log_leftover)
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=_settings(self._streams.kinds),
                standalone=True,
                identity=IDENTITY,
                clusterwide=not self._streams.namespaces,
                namespaces=list(self._streams.namespaces),
                stop_flag=self._stop,
            )
        finally:
            await self._hang_up()
        if not self._stop.is_set():
            raise WatchError("the watcher returned")

    def _open_socket(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._sockets = [*(known for known in self._sockets if known.fileno() >= 0), opened]
        return opened

    async def _hang_up(self) -> None:
        """Wait until the API server has taken leave of connections that are closing; their loop ends with us."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANG_UP_SECONDS):
                while any(known.fileno() >= 0 for known in self._sockets):  # noqa: ASYNC110 - a socket has no event
                    await asyncio.sleep(0.005)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry, backoff=LOGIN_SECONDS)
        async def login(**_: Any) -> kopf.AiohttpSession:
            """Give kopf a session of ours: tokens rotate in it, and its requests are followed."""
            if self._logged_in:  # it was refused for good, and kopf asks again without a pause
                await asyncio.sleep(LOGIN_SECONDS)
            self._logged_in = True
            return kopf.AiohttpSession(
                server=self._access.credentials.server,
                aiohttp_session=await self._access.session(self._streams.follow, socket_factory=self._open_socket),
            )

        async def pass_on(event: kopf.RawEvent, **_: Any) -> None:
            self._send_home(event["type"], dict(event["object"]))

        for kind in self._streams.kinds:
            kopf.on.event(*_resource(kind), registry=registry, id=kind.plural)(pass_on)
        return registry


def _log_leftover(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """When one watch is fatal, kopf leaves the errors of the others behind."""
    logger.warning("%s: %r", context["message"], context.get("exception"))


def _settings(kinds: Iterable[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    # We look for optional APIs ourselves: kopf would list and hold every CustomResourceDefinition of the cluster,
    # which takes rights over all of it, and megabytes.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Backoffs()
    settings.networking.connect_timeout = 5.0
    settings.networking.request_timeout = 60.0
    settings.queueing.idle_timeout = 1.0  # an idle worker holds the last event
    settings.queueing.exit_timeout = 0.5
    settings.watching.server_timeout = RENEWAL_SECONDS
    settings.watching.client_timeout = RENEWAL_SECONDS + 30
    settings.watching.inactivity_timeout = INACTIVITY_SECONDS
    settings.watching.reconnect_backoff = 0.2
    settings.watching.chunk_size = CHUNK
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    for kind in kinds:
        if labels_of(kind):
            settings.watching.label_selectors[_resource(kind)] = labels_of(kind)
    return settings


def _resource(kind: Kind) -> tuple[str, str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural


class _Backoffs(Iterable[float]):
    """Pauses before a request is repeated, without end: a watch outlives its API server."""

    def __iter__(self) -> Iterator[float]:
        seconds = 0.25
        while True:
            yield seconds * random.uniform(0.7, 1.3)  # noqa: S311 - a server that is back is not to be stormed
            seconds = min(seconds * 2, 2.0)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last state: saves a deep copy of every object at every event, and no annotation can come of it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Keeps no progress of handlers: ours have none."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


# Its retries are told by `Streams`, once per loss; what ends it is told by us, once; its thread takes no signals.
for _noisy in ("kopf._cogs.clients", "kopf._core.reactor"):
    logging.getLogger(_noisy).setLevel(logging.CRITICAL)
