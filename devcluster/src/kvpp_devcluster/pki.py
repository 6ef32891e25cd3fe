"""The cluster's own certificate authority, made with the openssl program."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpp_devcluster.processes import ProgramError, run

if TYPE_CHECKING:
    from pathlib import Path

DAYS = "3650"


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, both PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """One CA for servers, clients and webhooks, and the key pair that signs service account tokens."""

    directory: Path

    @property
    def certificate(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def key(self) -> Path:
        return self.directory / "ca.key"

    @property
    def token_key(self) -> Path:
        return self.directory / "sa.key"

    @property
    def token_public_key(self) -> Path:
        return self.directory / "sa.pub"

    def identity(self, name: str) -> Identity:
        return Identity(self.directory / f"{name}.crt", self.directory / f"{name}.key")

    def create(self) -> None:
        """Make the CA and the token key; raises ProgramError when openssl is missing."""
        if shutil.which("openssl") is None:
            raise ProgramError("openssl is not installed (Debian, Ubuntu: apt-get install openssl)")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key")
        self._openssl(
            *("req", "-x509", "-new", "-key", "ca.key", "-days", DAYS),
            *("-subj", "/CN=kvpp-devcluster-ca", "-out", "ca.crt"),
        )
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
        self._openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")

    def issue(self, name: str, subject: str, *, alternative_names: tuple[str, ...] = ()) -> Identity:
        """Sign a certificate for servers and clients; names as openssl writes them: `IP:127.0.0.1`, `DNS:localhost`."""
        extensions = "keyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
        if alternative_names:
            extensions += f"subjectAltName={','.join(alternative_names)}\n"
        (self.directory / f"{name}.ext").write_text(extensions)
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
        self._openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", DAYS, "-extfile", f"{name}.ext", "-out", f"{name}.crt"),
        )
        return self.identity(name)

    def _openssl(self, *arguments: str) -> None:
        run(["openssl", *arguments], cwd=self.directory)
