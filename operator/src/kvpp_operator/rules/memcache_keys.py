"""Keys and values of memcache's configuration files.

Source: the MetaService of memcache-hybrid 1.3.0 asked on loopback, key by key: an unknown key or a value out of bounds makes
it print a line and *exit 0*, so a Deployment would loop in Completed (launch facts 4.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """What a key takes, in words, and whether a text is that."""

    words: str
    takes: Callable[[str], bool]


def number(first: int, last: int | None = None) -> Form:
    words = f"a whole number from {first} to {last}" if last is not None else f"a whole number from {first} on"
    return Form(words, lambda text: is_integer(text) and first <= int(text) and (last is None or int(text) <= last))


def one_of(*choices: str) -> Form:
    return Form(f"one of {', '.join(choices)}", lambda text: text in choices)


def is_integer(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 20  # noqa: PLR2004 - 64 bits


TRUTH = Form("true or false", lambda text: text.lower() in ("true", "false", "0", "1"))
TEXT = Form(
    "one line of text, without $(…)", lambda text: text.isprintable() and bool(text.strip()) and "$(" not in text
)
"""The file has a line for each key, and `$(NAME)` is filled in when a pod starts."""


def tls(prefix: str, *, package: bool = True) -> dict[str, Form]:
    names = ["ca.path", "ca.crl.path", "cert.path", "key.path", "key.pass.path", "decrypter.path"]
    paths = {f"{prefix}.tls.{name}": TEXT for name in [*names, *(["package.path"] if package else [])]}
    return {f"{prefix}.tls.enable": TRUTH, **paths}


LOGGING = {
    "ock.mmc.log_level": one_of("debug", "info", "warn", "error"),
    "ock.mmc.log_output_target": one_of("screen", "file", "both"),
    "ock.mmc.log_path": TEXT,
    "ock.mmc.log_rotation_file_size": number(1, 500),
    "ock.mmc.log_rotation_file_count": number(1, 50),
}

META: Mapping[str, Form] = {
    "ock.mmc.meta_service_url": TEXT,
    "ock.mmc.meta_service.config_store_url": TEXT,
    "ock.mmc.meta_service.metrics_url": TEXT,
    **LOGGING,
    "ock.mmc.evict_threshold_high": number(1, 99),
    "ock.mmc.evict_threshold_low": number(1, 98),
    "ock.mmc.evict_check_interval_seconds": number(0, 86400),
    "ock.mmc.evict_yield_interval": number(0, 100000),
    "ock.mmc.evict_yield_duration_us": number(0, 10000),
    "ock.mmc.defrag_evict_threshold": number(1, 99),
    "ock.mmc.meta.lease_ttl_ms": number(1),
    "ock.mmc.meta.ha.enable": TRUTH,
    "ock.mmc.meta_service.alloc.max_value_mode.enabled": TRUTH,
    "ock.mmc.meta_service.lru_type": one_of("lru", "sharded_lru"),
    "ock.mmc.meta_service.lru_shard_count": number(1, 1024),
    "ock.mmc.meta_service.metrics_report_interval_seconds": number(0, 86400),
    "ock.mmc.meta_service.storage.metadata_mode": one_of("aggregated", "separated"),
    "ock.mmc.storage.async_flush.batch_limit": number(8, 1024),
    "ock.mmc.storage.async_flush.interval_ms": number(200, 1000),
    "ock.mmc.storage.pending_wait.timeout": number(1, 60000),
    "ock.mmc.storage.prefetch.enabled": TRUTH,
    "ock.mmc.dynamic_config.enable": TRUTH,
    "ock.mmc.dynamic_config.interval": number(1, 300),
    "ock.mmc.kv_events.enable": TRUTH,
    "ock.mmc.kv_events.transport": number(0, 0),
    "ock.mmc.kv_events.endpoint": TEXT,
    "ock.mmc.kv_events.model_name": TEXT,
    "ock.mmc.kv_events.tenant_id": TEXT,
    "ock.mmc.kv_events.hash_as_int": TRUTH,
    "ock.mmc.kv_events.block_size": number(-(2**31), 2**31 - 1),
    "ock.mmc.kv_events.queue_capacity": number(-(2**31), 2**31 - 1),
    "ock.mmc.zmq.enable_curve": TRUTH,
    "ock.mmc.zmq.private_key": TEXT,
    "ock.mmc.zmq.public_key": TEXT,
    **tls("ock.mmc"),
    **tls("ock.mmc.config_store"),
    **tls("ock.mmc.metrics"),
}
"""mmc-meta.conf."""

META_OWNED: Mapping[str, str] = {
    "ock.mmc.meta_service_url": "the operator, which plans the service's ports",
    "ock.mmc.meta_service.config_store_url": "the operator, which plans the service's ports",
    "ock.mmc.meta_service.metrics_url": "the operator, which plans the service's ports",
    "ock.mmc.meta.ha.enable": "spec.pooling.memcache.metaService.replicas",
}
"""Keys of mmc-meta.conf that the operator writes."""

EVICT_HIGH, EVICT_LOW = "ock.mmc.evict_threshold_high", "ock.mmc.evict_threshold_low"
EVICT_DEFAULTS = {EVICT_HIGH: 90, EVICT_LOW: 80}
"""Defaults of the service; it does not start unless high is above low."""

LEASE = "ock.mmc.meta.lease_ttl_ms"

SIZE = Form(
    "a size such as 1GB or 512MB",
    lambda text: re.fullmatch(r"[0-9]+([KMGT]?B|[KMGT])?", text, re.IGNORECASE | re.ASCII) is not None,
)
HCOM = "ock.mmc.local_service.hcom"

LOCAL: Mapping[str, Form] = {
    "ock.mmc.meta_service_url": TEXT,
    "ock.mmc.log_level": LOGGING["ock.mmc.log_level"],
    "ock.mmc.dynamic_config.enable": TRUTH,
    "ock.mmc.dynamic_config.interval": number(1, 300),
    "ock.mmc.client.aggregate.io": TRUTH,
    "ock.mmc.client.aggregate.num": number(1, 131072),
    "ock.mmc.client.batch_option.chunk.count": number(1, 64),
    "ock.mmc.client.batch_option.chunk.size": SIZE,
    "ock.mmc.client.read_thread_pool.size": number(1, 64),
    "ock.mmc.client.write_thread_pool.size": number(1, 64),
    "ock.mmc.client.retry_milliseconds": number(0, 600000),
    "ock.mmc.client.timeout.seconds": number(1, 600),
    "ock.mmc.local_service.config_store_url": TEXT,
    "ock.mmc.local_service.config_store_url_domain": TEXT,
    "ock.mmc.local_service.world_size": number(1, 1024),
    "ock.mmc.local_service.protocol": TEXT,
    "ock.mmc.local_service.dram.size": SIZE,
    "ock.mmc.local_service.dram.best_effort.enabled": TRUTH,
    "ock.mmc.local_service.max.dram.size": SIZE,
    "ock.mmc.local_service.hbm.size": SIZE,
    "ock.mmc.local_service.max.hbm.size": SIZE,
    "ock.mmc.local_service.storage.enabled": TRUTH,
    "ock.mmc.local_service.backend_id": TEXT,
    "ock.mmc.local_service.tag": TEXT,
    "ock.mmc.local_service.tag_op_info": TEXT,
    "ock.mmc.local_service.hcom_url": TEXT,
    **tls("ock.mmc"),
    **tls("ock.mmc.config_store"),
    **tls(HCOM, package=False),
}
"""mmc-local.conf."""

STORAGE = re.compile(r"ubsio\.[a-z0-9_.]+", re.IGNORECASE | re.ASCII)
"""Keys of the SSD tier, handed on to its own library."""

LOCAL_OWNED: Mapping[str, str] = {
    "ock.mmc.meta_service_url": "the operator, which knows where the MetaService is",
    "ock.mmc.local_service.config_store_url": "the operator, which knows where the MetaService is",
    "ock.mmc.local_service.protocol": "spec.pooling.memcache.protocol",
    "ock.mmc.local_service.dram.size": "spec.pooling.memcache.memoryPerDevice",
    "ock.mmc.local_service.hcom_url": "the operator, which plans the ports of local services",
}
"""Keys of mmc-local.conf that the operator writes."""

WORLD_SIZE = "ock.mmc.local_service.world_size"
