"""Facts about pools: which software speaks to which release, words of the configuration files, limits.

Sources: launch facts 4.2, 4.3 and 11.1 (Pools); "EMP" marks what was seen with the real packages on loopback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpp_operator.ports import SERVICE_PORTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvpp_operator.api.pooling import Pooling

WORLD_SIZE = 1024
"""The most local services that one MetaService takes. Rendered as it is: a later change would restart the service."""

LARGEST_SHARE = 2**40
"""Bytes that one device's process may lend to a memcache pool (`ock.mmc.local_service.dram.size`, EMP)."""

MEMCACHE_PROTOCOLS: Mapping[str, str] = {
    "DeviceRdma": "device_rdma",
    "DeviceSdma": "device_sdma",
    "DeviceUrma": "device_urma",
    "DeviceUboe": "device_uboe",
    "HostRdma": "host_rdma",
    "HostTcp": "host_tcp",
    "HostUrma": "host_urma",
    "HostShm": "host_shm",
}

LISTENING_PROTOCOLS = frozenset({"HostRdma", "HostTcp", "HostUrma"})
"""With these each device's process listens on the pod's address: `hcom_url`, port + local rank (ports.ENGINE_PORTS)."""

DEFAULT_PROTOCOL: Mapping[tuple[str, str], str] = {
    ("A2", "RoCE"): "DeviceRdma",
    ("A2", "HCCS"): "DeviceRdma",
    ("A3", "HCCS"): "DeviceSdma",
    ("A3", "RoCE"): "DeviceRdma",  # device_sdma is wrong over RoCE
    ("950DT", "UB"): "DeviceUrma",
    ("950DT", "UBoE"): "DeviceUboe",
    ("950PR", "UB"): "DeviceUrma",
    ("950PR", "UBoE"): "DeviceUboe",
}
"""By chip and interconnect (launch facts 4.2 and 11.1)."""

MASTER_LEASE_MILLISECONDS = 11000
"""Of blocks that are read: longer than a transfer may take, else one vanishes meanwhile (launch facts 4.3)."""

LOCAL_SERVICE_PORT = 7000
"""First port of local services on the pod network."""

# The pool image (images/pool) has every version below, each in a folder of /opt.
META_SERVICE_VERSION: Mapping[str, str] = {
    "0.28.0rc1": "1.2.1",
    "0.29.0rc1": "1.2.1",
    "0.30.0rc1": "1.3.0",
    "0.30.0rc2": "1.3.0",
    "latest": "1.3.0",
}
"""memcache-hybrid for the MetaService beside each release's client (1.2.0, from 0.30 on 1.3.0).

1.2.0 itself imports torch, which is not small; 1.2.1 is the same line and does not (EMP).
"""

SINCE_1_3_0 = frozenset({
    "ock.mmc.defrag_evict_threshold", "ock.mmc.dynamic_config.enable", "ock.mmc.dynamic_config.interval",
    "ock.mmc.evict_check_interval_seconds", "ock.mmc.evict_yield_duration_us", "ock.mmc.evict_yield_interval",
    "ock.mmc.kv_events.transport", "ock.mmc.meta_service.alloc.max_value_mode.enabled",
    "ock.mmc.meta_service.lru_shard_count", "ock.mmc.meta_service.lru_type",
    "ock.mmc.meta_service.storage.metadata_mode", "ock.mmc.zmq.enable_curve", "ock.mmc.zmq.private_key",
    "ock.mmc.zmq.public_key",
})  # fmt: skip
"""Keys of mmc-meta.conf that the MetaService of releases before 0.30 does not know (EMP: both asked key by key)."""

LOCAL_SINCE_1_3_0 = frozenset({"ock.mmc.local_service.tag", "ock.mmc.local_service.tag_op_info"})
"""The same of mmc-local.conf."""

MASTER_VERSION: Mapping[str, str] = {"latest": "0.3.13.post1"}
"""mooncake-transfer-engine-npu of the small image by release.

Released images pin 0.3.11.post1, whose master wants CANN's libascendcl (EMP): there the master runs in the engine's own
image, which has the one version that its clients speak.
"""


def pool_service(pooling: Pooling | None) -> str | None:
    """Name the service that the operator runs for a pool, as in `ports.SERVICE_PORTS`; None: no service of ours."""
    if pooling is None:
        return None
    if pooling.backend == "Memcache":
        return None if pooling.memcache and pooling.memcache.meta_service.external else "meta-service"
    return None if pooling.mooncake and pooling.mooncake.master.external else "mooncake-master"


def pool_service_on_host_network(pooling: Pooling | None) -> str | None:
    """Name the service if its podTemplate puts it on the host network: its ports are then claims."""
    service = pool_service(pooling)
    if pooling is None or service is None:
        return None
    templates = {
        "meta-service": pooling.memcache.meta_service.pod_template if pooling.memcache else None,
        "mooncake-master": pooling.mooncake.master.pod_template if pooling.mooncake else None,
    }
    template = templates[service]
    return service if template is not None and template.spec.get("hostNetwork") is True else None


def local_services(pooling: Pooling | None, protocol: str, devices_per_pod: int) -> int:
    """Count the ports that local services of one pod bind, for `ports.host_layout`: one a device, if they listen."""
    listens = pooling is not None and pooling.backend == "Memcache" and protocol in LISTENING_PROTOCOLS
    return devices_per_pod if listens else 0


def default_ports(service: str) -> dict[str, int]:
    """Give a service's ports on the pod network by part: `{"rpc": 5000, "store": 6000, "http": 8000}`."""
    return {port.part: port.default for port in SERVICE_PORTS[service] if port.part and port.default}
