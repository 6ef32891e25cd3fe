"""Credentials that stay fresh: tokens in files rotate, plugins' tokens expire, and a 401 asks for new ones.

One `Access` serves several event loops (ours and the watcher's), so it locks by thread and blocks in worker threads.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from kvpp_operator.cluster.kubeconfig import Credentials, ExecPlugin, KubeconfigError

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType
    from aiohttp.client_middlewares import ClientHandlerType, ClientMiddlewareType

SocketFactory = Callable[["AddrInfoType"], socket.socket]
# client-go re-reads a token file once a minute: k8s.io/client-go/transport/token_source.go
TOKEN_FILE_SECONDS = 60.0
PLUGIN_SECONDS = 60.0
EXPIRY_LEEWAY_SECONDS = 10.0
UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class Identity:
    """What proves who we are, and until when (`time.monotonic`) it needs no second look."""

    authorization: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    private_key: bytes = field(default=b"", repr=False)
    fresh_until: float = float("inf")


class Access:
    """A way to the API server whose credentials are renewed when they age and when the server refuses them."""

    def __init__(self, load: Callable[[], Credentials]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self.credentials = load()
        self._identity: Identity | None = None
        self._context: tuple[Identity, ssl.SSLContext] | None = None

    async def identity(self) -> Identity:
        """Read the identity to use for the next request.  Raises `KubeconfigError` if there is none to be had."""
        known = self._identity
        if known is not None and time.monotonic() < known.fresh_until:
            return known
        return await asyncio.to_thread(self._renew, known)

    async def renew(self, refused: Identity) -> Identity | None:
        """Get another identity than the one that was refused, or `None` if there is no other."""
        renewed = await asyncio.to_thread(self._renew, refused)
        return renewed if renewed.authorization != refused.authorization else None

    def _renew(self, known: Identity | None) -> Identity:
        with self._lock:
            if self._identity is not known and self._identity is not None:
                return self._identity  # another caller was faster
            self.credentials = self._load()
            self._identity = _identify(self.credentials)
            return self._identity

    async def ssl_context(self) -> ssl.SSLContext | bool:
        """Context for the server's certificate and for ours; `False` on plain HTTP."""
        if self.credentials.server.startswith("http://"):
            return False
        identity = await self.identity()
        known = self._context
        if known is not None and _same_certificate(known[0], identity):
            return known[1]
        context = await asyncio.to_thread(_ssl_context, self.credentials, identity)
        self._context = identity, context
        return context

    @property
    def proxy(self) -> str | None:
        """Proxy to go through: the kubeconfig's, else the environment's (`HTTPS_PROXY`, `NO_PROXY`)."""
        if self.credentials.proxy_url:
            return self.credentials.proxy_url
        parts = urlsplit(self.credentials.server)
        host = parts.netloc.rpartition("@")[2]
        return None if proxy_bypass(host) else getproxies().get(parts.scheme)

    async def session(
        self, *middlewares: ClientMiddlewareType, limit: int = 0, socket_factory: SocketFactory | None = None
    ) -> aiohttp.ClientSession:
        """Open a session whose every request carries fresh credentials, and is repeated once after a 401."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, ssl=await self.ssl_context(), socket_factory=socket_factory),
            headers={"User-Agent": "kvpp-operator"},
            proxy=self.proxy,
            middlewares=(*middlewares, self.authenticate),
        )

    async def authenticate(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """Middleware of aiohttp: adds who we are."""
        if self.credentials.tls_server_name:
            request.server_hostname = self.credentials.tls_server_name
        for name, value in self.credentials.impersonate:
            request.headers.add(name, value)
        identity = await self.identity()
        if identity.authorization:
            request.headers["Authorization"] = identity.authorization
        response = await handler(request)
        if response.status != UNAUTHORIZED:
            return response
        renewed = await self.renew(identity)
        if renewed is None:
            return response
        response.release()
        request.headers["Authorization"] = renewed.authorization
        return await handler(request)


def _same_certificate(one: Identity, other: Identity) -> bool:
    return (one.certificate, one.private_key) == (other.certificate, other.private_key)


def _identify(credentials: Credentials) -> Identity:
    own = credentials.certificate, credentials.private_key
    if credentials.exec_plugin is not None:
        return _run_plugin(credentials.exec_plugin, credentials)
    if credentials.token_file is not None:
        try:
            token = credentials.token_file.read_text().strip()
        except OSError as error:
            problem = f"cannot read {credentials.token_file}: {error.strerror}"
            raise KubeconfigError(credentials.source, "tokenFile", problem) from None
        return Identity(f"Bearer {token}", *own, fresh_until=time.monotonic() + TOKEN_FILE_SECONDS)
    if credentials.token:
        return Identity(f"Bearer {credentials.token}", *own)
    if credentials.username:
        return Identity(aiohttp.encode_basic_auth(credentials.username, credentials.password), *own)
    return Identity("", *own)


def _ssl_context(credentials: Credentials, identity: Identity) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=credentials.ca_data or None)
    except ssl.SSLError:
        raise KubeconfigError(credentials.source, "certificate-authority", "holds no usable certificate") from None
    if not credentials.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity.certificate:
        # Python's ssl reads a key from a file only; this one is ours alone (mode 0600) and gone at once.
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(identity.private_key + b"\n" + identity.certificate)
            pair.flush()
            try:
                context.load_cert_chain(pair.name)
            except ssl.SSLError:
                problem = "certificate and key do not fit together"
                raise KubeconfigError(credentials.source, "client-certificate", problem) from None
    return context


def _run_plugin(plugin: ExecPlugin, credentials: Credentials) -> Identity:
    """Run an exec plugin: client.authentication.k8s.io, request in `KUBERNETES_EXEC_INFO`, answer on stdout."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster_info:
        spec["cluster"] = {
            "server": credentials.server,
            "certificate-authority-data": base64.b64encode(credentials.ca_data.encode()).decode(),
            "insecure-skip-tls-verify": not credentials.verify,
            "tls-server-name": credentials.tls_server_name,
        }
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    where = f"exec {plugin.command}"
    try:
        done = subprocess.run(  # noqa: S603 - the user's kubeconfig names this program for exactly this purpose
            [plugin.command, *plugin.args],
            env={**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)},
            capture_output=True,
            timeout=PLUGIN_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise KubeconfigError(credentials.source, where, f"no such program{hint}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KubeconfigError(credentials.source, where, f"failed: {type(error).__name__}") from None
    if done.returncode != 0:
        raise KubeconfigError(credentials.source, where, f"exited with {done.returncode}")
    try:
        return _plugin_identity(json.loads(done.stdout)["status"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KubeconfigError(credentials.source, where, "printed no ExecCredential with a status") from None


def _plugin_identity(status: dict[str, Any]) -> Identity:
    fresh_until = float("inf")
    if status.get("expirationTimestamp"):
        left = datetime.fromisoformat(status["expirationTimestamp"]) - datetime.now(UTC)
        fresh_until = time.monotonic() + max(left.total_seconds() - EXPIRY_LEEWAY_SECONDS, 1.0)
    token = status.get("token")
    return Identity(
        f"Bearer {token}" if token else "",
        (status.get("clientCertificateData") or "").encode(),
        (status.get("clientKeyData") or "").encode(),
        fresh_until,
    )
