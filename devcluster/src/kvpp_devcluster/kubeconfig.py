"""Writing and reading kubeconfig files; they are written as JSON, which is YAML too."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from kvpp_devcluster.pki import Identity


@dataclass(frozen=True)
class Access:
    """How to reach an API server: its URL, what to trust, and who to be."""

    server: str
    ca: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None
    token: str | None = None

    def ssl_context(self) -> ssl.SSLContext | None:
        """Build the TLS side; None for a plain http server."""
        if not self.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.client_certificate:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def with_certificate(server: str, ca: Path, identity: Identity) -> Access:
    return Access(server, ca, client_certificate=identity.certificate, client_key=identity.key)


def write(path: Path, access: Access, *, namespace: str = "default") -> Path:
    """Write `access` as the only context of a kubeconfig file that only its owner may read."""
    cluster: dict[str, str] = {"server": access.server}
    user: dict[str, str] = {}
    if access.ca:
        cluster["certificate-authority"] = str(access.ca)
    if access.client_certificate:
        user |= {"client-certificate": str(access.client_certificate), "client-key": str(access.client_key)}
    if access.token:
        user["token"] = access.token
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "devcluster",
        "clusters": [{"name": "devcluster", "cluster": cluster}],
        "users": [{"name": "devcluster", "user": user}],
        "contexts": [
            {"name": "devcluster", "context": {"cluster": "devcluster", "user": "devcluster", "namespace": namespace}}
        ],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))
    return path


def read(path: Path) -> Access:
    """Read the current context of a kubeconfig file with certificates (as files or inline) or a token."""
    document = yaml.safe_load(path.read_text())
    context = _named(document["contexts"], document["current-context"])["context"]
    cluster = _named(document["clusters"], context["cluster"])["cluster"]
    user = _named(document["users"], context["user"])["user"]
    return Access(
        server=cluster["server"],
        ca=_file(path, cluster, "certificate-authority"),
        client_certificate=_file(path, user, "client-certificate"),
        client_key=_file(path, user, "client-key"),
        token=user.get("token"),
    )


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _file(kubeconfig: Path, entry: dict[str, str], field: str) -> Path | None:
    if field in entry:
        return kubeconfig.parent / entry[field]
    if f"{field}-data" not in entry:
        return None
    # The ssl module loads certificates from files only.
    with tempfile.NamedTemporaryFile(prefix="kvpp-devcluster-", suffix=".pem", delete=False) as file:
        file.write(base64.b64decode(entry[f"{field}-data"]))
    return Path(file.name)
