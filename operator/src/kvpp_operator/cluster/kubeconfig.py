"""Where the API server is and who we are: a pod's service account, or kubeconfig files as kubectl reads them.

Rules of kubeconfig: Kubernetes documentation, "Organizing cluster access using kubeconfig files"; field names:
k8s.io/client-go/tools/clientcmd/api/v1.  Nothing secret appears in a `repr` or in the text of an error.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(Exception):
    """Credentials cannot be read.  The text names the file and the key, never a value."""

    def __init__(self, source: Path | str, key: str, problem: str) -> None:
        super().__init__(f"{source}: {key}: {problem}" if key else f"{source}: {problem}")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints credentials (client.authentication.k8s.io ExecCredential)."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    cluster_info: bool = False
    install_hint: str = ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One API server and one identity.  At most one of token, token file, exec plugin and basic login is set."""

    server: str
    namespace: str = "default"
    ca_data: str = field(default="", repr=False)  # PEM; "" = the system's authorities
    verify: bool = True
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)  # may hold a password
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    certificate: bytes = field(default=b"", repr=False)  # PEM
    private_key: bytes = field(default=b"", repr=False)  # PEM
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    impersonate: tuple[tuple[str, str], ...] = ()  # request headers
    exec_plugin: ExecPlugin | None = None
    source: str = ""  # for messages


def load(
    path: str | None = None,
    *,
    context: str | None = None,
    env: Mapping[str, str] = os.environ,
    home: Path | None = None,
) -> Credentials:
    """Read credentials: the file given, else `KUBECONFIG`, else the pod's service account, else `~/.kube/config`.

    The order is controller-runtime's, so that a kubeconfig in a developer's home never wins inside a pod.
    """
    if path:
        return from_files([Path(path).expanduser()], context=context)
    listed = [Path(part).expanduser() for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return from_files(listed, context=context)
    if env.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists() and context is None:
        return from_service_account(env=env)
    default = (home or Path.home()) / ".kube" / "config"
    if not default.exists():
        raise KubeconfigError(
            default, "", "no such file, KUBECONFIG is not set, and this is no pod with a service account"
        )
    return from_files([default], context=context)


def from_service_account(directory: Path = SERVICE_ACCOUNT, *, env: Mapping[str, str] = os.environ) -> Credentials:
    """Credentials of a pod.  Its token is a file that the kubelet replaces long before it expires."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = directory / "namespace"
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_read(namespace, directory, "namespace").decode().strip() if namespace.exists() else "default",
        ca_data=_read(directory / "ca.crt", directory, "ca.crt").decode(),
        token_file=directory / "token",
        source=str(directory),
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cluster, user or context and the file that says it: relative paths in it start there."""

    file: Path
    where: str
    content: Mapping[str, Any]

    def text(self, key: str) -> str:
        value = self.content.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise KubeconfigError(self.file, f"{self.where}.{key}", "must be a string")
        return value

    def flag(self, key: str) -> bool:
        value = self.content.get(key, False)
        if not isinstance(value, bool):
            raise KubeconfigError(self.file, f"{self.where}.{key}", "must be true or false")
        return value

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        return self.file.parent / Path(text).expanduser() if text else None

    def pem(self, name: str) -> bytes:
        """Content of `name-data` (base64), else of the file `name`; the data wins, as in kubectl."""
        data = self.text(f"{name}-data")
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error:
                raise KubeconfigError(self.file, f"{self.where}.{name}-data", "is not base64") from None
        path = self.path(name)
        return _read(path, self.file, f"{self.where}.{name}") if path else b""


def from_files(paths: list[Path], *, context: str | None = None) -> Credentials:
    """Merge kubeconfig files as kubectl does: the first file that names an entry wins, missing files are skipped."""
    current = context or ""
    entries: dict[tuple[str, str], _Entry] = {}
    present = [path for path in dict.fromkeys(paths) if path.exists()]
    if not present:
        raise KubeconfigError(os.pathsep.join(map(str, paths)), "", "no such file")
    for path in present:
        document = _parse(path)
        current = current or str(document.get("current-context") or "")
        for section in ("clusters", "users", "contexts"):
            for entry in _entries(path, document, section):
                entries.setdefault((section, entry.where), entry)
    if not current:
        raise KubeconfigError(present[0], "current-context", "is not set, and no context is chosen")
    chosen = _find(entries, present[0], "contexts", "current-context", current)
    cluster = _find(entries, chosen.file, "clusters", f"{chosen.where}.cluster", chosen.text("cluster"))
    name = chosen.text("user")
    user = _find(entries, chosen.file, "users", f"{chosen.where}.user", name) if name else _Entry(chosen.file, "", {})
    return _credentials(chosen, cluster, user)


def _credentials(context: _Entry, cluster: _Entry, user: _Entry) -> Credentials:
    server = cluster.text("server")
    if not server.startswith(("https://", "http://")):
        raise KubeconfigError(
            cluster.file, f"{cluster.where}.server", "must be a URL that starts with https:// or http://"
        )
    if "auth-provider" in user.content:
        raise KubeconfigError(user.file, f"{user.where}.auth-provider", "is gone from Kubernetes since 1.26; use exec")
    certificate, private_key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) != bool(private_key):
        missing = "client-key" if certificate else "client-certificate"
        raise KubeconfigError(user.file, f"{user.where}.{missing}", "is missing beside its counterpart")
    plugin = _exec_plugin(user)
    token_file = user.path("tokenFile")  # wins over token, as in client-go
    return Credentials(
        server=server.rstrip("/"),
        namespace=context.text("namespace") or "default",
        ca_data=_pem_text(cluster, "certificate-authority"),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name"),
        proxy_url=cluster.text("proxy-url"),
        token="" if token_file else user.text("token"),
        token_file=token_file,
        certificate=certificate,
        private_key=private_key,
        username=user.text("username"),
        password=user.text("password"),
        impersonate=_impersonation(user),
        exec_plugin=plugin,
        source=f"{context.file} {context.where}",
    )


def _pem_text(entry: _Entry, key: str) -> str:
    data = entry.pem(key)
    if data and b"-----BEGIN" not in data:
        raise KubeconfigError(entry.file, f"{entry.where}.{key}", "holds no PEM certificate")
    return data.decode(errors="replace")


def _impersonation(user: _Entry) -> tuple[tuple[str, str], ...]:
    name = user.text("as")
    groups = user.content.get("as-groups") or []
    head = (("Impersonate-User", name),) if name else ()
    return (*head, *(("Impersonate-Group", str(group)) for group in groups))


def _exec_plugin(user: _Entry) -> ExecPlugin | None:
    content = user.content.get("exec")
    if content is None:
        return None
    plugin = _Entry(user.file, f"{user.where}.exec", content)
    command = plugin.text("command")
    if not command:
        raise KubeconfigError(user.file, f"{plugin.where}.command", "is missing")
    if os.sep in command:  # relative to the file, as kubectl has it; a bare name is searched in PATH
        command = str(user.file.parent / command)
    return ExecPlugin(
        command=command,
        args=tuple(map(str, content.get("args") or ())),
        env=tuple((str(item["name"]), str(item["value"])) for item in content.get("env") or ()),
        api_version=plugin.text("apiVersion") or "client.authentication.k8s.io/v1",
        cluster_info=plugin.flag("provideClusterInfo"),
        install_hint=plugin.text("installHint"),
    )


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(_read(path, path, ""))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise KubeconfigError(path, "", f"is not YAML{line}") from None
    if document is not None and not isinstance(document, dict):
        raise KubeconfigError(path, "", "is no kubeconfig: a map is expected")
    return document or {}


def _entries(path: Path, document: Mapping[str, Any], section: str) -> list[_Entry]:
    singular = section.removesuffix("s")
    found = []
    for item in document.get(section) or ():
        if not isinstance(item, dict) or not isinstance(item.get(singular) or {}, dict) or "name" not in item:
            raise KubeconfigError(path, section, f"every item needs a name and a {singular}")
        found.append(_Entry(path, f"{section}[{item['name']}]", item.get(singular) or {}))
    return found


def _find(entries: Mapping[tuple[str, str], _Entry], file: Path, section: str, key: str, name: str) -> _Entry:
    entry = entries.get((section, f"{section}[{name}]"))
    if entry is None:
        where = sorted(found for kind, found in entries if kind == section)
        known = ", ".join(found[len(section) + 1 : -1] for found in where) or "none"
        raise KubeconfigError(file, key, f"names {name!r}, which is not in {section}; there are: {known}")
    return entry


def _read(path: Path, file: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KubeconfigError(file, key, f"cannot read {path}: {error.strerror}") from None
