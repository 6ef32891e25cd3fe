"""TLS between the real MetaService and the real client, with keys as a Secret volume has them."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from specs import UNIFIED

from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import plan_pool
from kvpp_operator.render.pool.config import local_conf
from kvpp_operator.render.pool.meta_service import config

ADDRESS = "127.0.0.1"


@pytest.fixture
def authority(room: Path) -> Path:
    """A folder with ca.pem, and pool.pem with its key, signed by it."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=room)

    openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:3072",
        "-nodes",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=ca",
    )
    openssl("req", "-newkey", "rsa:3072", "-nodes", "-keyout", "pool.key", "-out", "pool.csr", "-subj", "/CN=pool")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-out", "pool.pem")
    openssl("x509", "-req", "-in", "pool.csr", *signing)
    return room


def tls_keys(folder: Path) -> dict[str, str]:
    """TLS on for both links, with the files of a folder."""
    names = {"ca.path": "ca.pem", "cert.path": "pool.pem", "key.path": "pool.key"}
    links = ("ock.mmc.tls", "ock.mmc.config_store.tls")
    files = {f"{link}.{key}": str(folder / name) for link in links for key, name in names.items()}
    return files | {f"{link}.enable": "true" for link in links}


@pytest.fixture
def pool(authority: Path, plan_of: Any, pooled: Any, free_ports: Any, config_volume: Any) -> Plan:
    """A plan with TLS; the service sees its keys as a Secret volume has them, the client as single files."""
    names = ("ca.pem", "pool.pem", "pool.key")
    secret = config_volume(authority / "secret", {name: (authority / name).read_text() for name in names})
    memcache = {"protocol": "HostShm", "metaConfig": tls_keys(secret), "localConfig": tls_keys(authority)}
    plan = plan_of(pooled(UNIFIED, {"backend": "Memcache", "memcache": memcache}))
    ports = dict(zip(("rpc", "store", "http"), free_ports(3), strict=True))
    return Plan(plan.resolved, plan.roles, plan.engines, plan_pool(plan.resolved, "", ports))


def test_service_and_client_speak_tls(
    pool: Plan, meta_service: Any, until_healthy: Any, eventually: Any, client: Any, *, room: Path
) -> None:
    assert pool.pool is not None
    assert pool.pool.service is not None
    ports = pool.pool.service.ports
    service = meta_service(config(pool), ADDRESS)
    until_healthy(service, ports["http"])
    provided(room / "libraries")
    text = local_conf("demo", pool.pool).replace(pool.pool.rpc.host, "localhost")
    process = client("1.3.0", text.replace("/etc/kvpp-pool/openssl", str(room / "libraries")))
    connected = f"Connect to {ADDRESS}:{ports['store']} successfully, with ssl enable"
    eventually(lambda: connected in process.said(), what=process.said)
    assert "successfully, ssl enable" in service.said()


def provided(folder: Path) -> None:
    """What the init container does for the client."""
    program = Path(str(files("kvpp_operator.render.pool") / "files" / "wait.py"))
    subprocess.run([sys.executable, str(program), "--openssl", str(folder)], check=True)


def test_libraries_as_the_client_takes_them(tmp_path: Path) -> None:
    """Regular files, that nobody may write and others may not read."""
    provided(tmp_path / "libraries")
    made = {path.name: oct(path.lstat().st_mode) for path in (tmp_path / "libraries").iterdir()}
    assert made == {"libssl.so": "0o100500", "libcrypto.so": "0o100500"}


def test_engines_with_tls_get_them(plan_of: Any, pooled: Any, objects_of: Any) -> None:
    local = {"ock.mmc.tls.enable": "true", "ock.mmc.tls.ca.path": "/etc/pool-tls/ca.pem"}
    made = objects_of(pooled(UNIFIED, {"backend": "Memcache", "memcache": {"localConfig": local}}))
    engine = next(
        one for one in made.values() if one["kind"] == "Deployment" and "-pool-" not in one["metadata"]["name"]
    )
    [wait] = engine["spec"]["template"]["spec"]["initContainers"]
    assert wait["command"][-2:] == ["--openssl", "/etc/kvpp-pool/openssl"]
    text = next(one["data"]["mmc-local.conf"] for one in made.values() if "mmc-local.conf" in one.get("data", {}))
    assert "ock.mmc.tls.package.path = /etc/kvpp-pool/openssl" in text.splitlines()
