"""The files that a pool's containers read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kvpp_operator.catalogue import pools
from kvpp_operator.plan.pool import MemcachePlan, MooncakePlan, PoolPlan

PACKAGE = "kvpp_operator.render.pool"
META, LOCAL, MOONCAKE = "mmc-meta.conf", "mmc-local.conf", "mooncake.json"

MOUNT = "/etc/kvpp-pool"
"""Where a container sees its pool's files."""

OPENSSL = f"{MOUNT}/openssl"
WITHOUT_PACKAGE = "ock.mmc.local_service.hcom."
"""Links whose OpenSSL comes with their library."""

CLIENT_RETRY_MILLISECONDS = "30000"
"""0 by default: what meets a restarting MetaService is lost. A new leader comes 10 s after the last one's word."""

templates = Environment(
    loader=PackageLoader(PACKAGE), undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True,
    autoescape=False,  # noqa: S701 - no HTML
)  # fmt: skip
templates.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False, indent=2)


@cache
def script(name: str) -> str:
    """One of the small programs in `files/`: they travel in ConfigMaps, so that any image with Python will do."""
    return files(PACKAGE).joinpath("files", name).read_text(encoding="utf-8")


def render(template: str, **words: Any) -> str:
    return templates.get_template(f"{template}.j2").render(words)


def openssl(written: Mapping[str, str], folder: str) -> dict[str, str]:
    """Tell where OpenSSL is, for each kind of link that the user wants TLS on (files/openssl.py)."""
    wanted = [key.removesuffix("enable") for key in written if key.endswith(".tls.enable") and is_on(written[key])]
    return {f"{prefix}package.path": folder for prefix in wanted if not prefix.startswith(WITHOUT_PACKAGE)}


def is_on(text: str) -> bool:
    return text.lower() in ("true", "1")


def meta_conf(deployment: str, pool: PoolPlan) -> str:
    """mmc-meta.conf. What the user wrote has been checked key by key (rules POOL030 to POOL033)."""
    service, backend = pool.service, pool.backend
    assert service is not None
    assert isinstance(backend, MemcachePlan)
    settings = {
        "ock.mmc.meta_service_url": f"tcp://$(META_POD_IP):{service.ports['rpc']}",
        "ock.mmc.meta_service.config_store_url": f"tcp://$(META_POD_IP):{service.ports['store']}",
        "ock.mmc.meta_service.metrics_url": f"http://$(META_POD_IP):{service.ports['http']}",
        "ock.mmc.meta.ha.enable": "true" if service.replicas > 1 else "false",
        "ock.mmc.log_output_target": "screen",
        "ock.mmc.log_path": "/tmp/memcache",  # noqa: S108 - made even when nothing is written there
        **openssl(backend.meta_config, "/tmp/openssl"),  # noqa: S108 - where the start puts it
        **backend.meta_config,
    }
    return render(META, deployment=deployment, settings=settings)


def local_conf(deployment: str, pool: PoolPlan) -> str:
    """mmc-local.conf of every engine pod; `$(…)` stands in it only for protocols that listen."""
    backend = pool.backend
    assert isinstance(backend, MemcachePlan)
    listens = backend.protocol in pools.LISTENING_PROTOCOLS
    settings = {
        "ock.mmc.meta_service_url": f"tcp://{pool.rpc}",
        "ock.mmc.local_service.config_store_url": f"tcp://{backend.store}",
        "ock.mmc.local_service.world_size": str(pools.WORLD_SIZE),
        "ock.mmc.local_service.protocol": pools.MEMCACHE_PROTOCOLS[backend.protocol],
        "ock.mmc.local_service.dram.size": pool.share,
        **({"ock.mmc.local_service.hcom_url": "tcp://$(POD_IP):$(LOCAL_SERVICE_PORT)"} if listens else {}),
        "ock.mmc.client.retry_milliseconds": CLIENT_RETRY_MILLISECONDS,
        **openssl(backend.local_config, OPENSSL),
        **backend.local_config,
    }
    return render(LOCAL, deployment=deployment, pool=pool.name, settings=settings)


def mooncake_json(pool: PoolPlan) -> str:
    """mooncake.json of every engine pod (launch facts 4.3)."""
    backend = pool.backend
    assert isinstance(backend, MooncakePlan)
    settings: Mapping[str, Any] = {
        "metadata_server": "P2PHANDSHAKE",
        "protocol": "ascend",
        "device_name": "",
        "master_server_address": str(pool.rpc),
        "global_segment_size": pool.share,
        **backend.config,
    }
    return render(MOONCAKE, settings=settings)


def engine_file(deployment: str, pool: PoolPlan) -> tuple[str, str]:
    """(name, text) of the file that engines read."""
    if isinstance(pool.backend, MemcachePlan):
        return LOCAL, local_conf(deployment, pool)
    return MOONCAKE, mooncake_json(pool)
