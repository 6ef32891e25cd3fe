"""The P/D proxy on loopback: who its members are, additions and removals, and whether it is still the same process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from kvpp_operator.router.members import ROLES, Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvpp_operator.router.members import Role
    from kvpp_operator.router.steps import Members

PATIENCE = aiohttp.ClientTimeout(total=5.0)
LIST_KEYS: dict[Role, str] = {"prefill": "current_prefill_instances", "decode": "current_decode_instances"}


class ProxyError(Exception):
    """The proxy does not answer, or not as we know it."""


class Proxy:
    """The admin side of one proxy; `url` as in `http://127.0.0.1:8100`."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url.rstrip("/")

    async def members(self) -> Members:
        """Everybody on its list. Raises `ProxyError`.

        `/healthcheck` only counts; the answer to an empty addition names them and changes nothing.
        """
        return await self._adjust("add", "prefill", ())

    async def add(self, members: Iterable[Member]) -> None:
        """Ask for members; they come in once the proxy has reached them. Raises `ProxyError`."""
        for role, addresses in by_role(members).items():
            await self._adjust("add", role, addresses)

    async def remove(self, members: Iterable[Member]) -> Members:
        """Remove or, while requests run, set aside; the list afterwards. Raises `ProxyError`."""
        listed: Members = frozenset()
        for role, addresses in by_role(members).items():
            listed = await self._adjust("remove", role, addresses)
        return listed

    async def _adjust(self, verb: str, role: Role, addresses: Iterable[str]) -> Members:
        body = {"type": role, "instances": list(addresses)}
        try:
            async with self._session.post(f"{self.url}/instances/{verb}", json=body, timeout=PATIENCE) as response:
                response.raise_for_status()
                return listed_in(await response.json())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            raise ProxyError(f"{type(error).__name__}: {error}") from error

    async def watch(self, changed: Callable[[bool], None], retry_seconds: float = 0.2) -> None:
        """Say at once when the proxy comes (True) and when it is gone (False), for ever.

        A connection without a request: the server never closes it, the kernel does when the process ends.
        """
        parts = urlsplit(self.url)
        while True:
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            except OSError:
                await asyncio.sleep(retry_seconds)
                continue
            changed(True)  # noqa: FBT003
            try:
                await reader.read()
            except OSError:
                await asyncio.sleep(0)  # a reset says the same as an end
            finally:
                writer.close()
                changed(False)  # noqa: FBT003


def by_role(members: Iterable[Member]) -> dict[Role, list[str]]:
    """Only roles that somebody has."""
    chosen = sorted(members)
    found = {role: [member.address for member in chosen if member.role == role] for role in ROLES}
    return {role: addresses for role, addresses in found.items() if addresses}


def listed_in(answer: dict[str, Any]) -> Members:
    return frozenset(Member(role, address) for role, key in LIST_KEYS.items() for address in answer[key])
