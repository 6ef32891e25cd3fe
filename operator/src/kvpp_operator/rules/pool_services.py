"""Addresses, sizes and the services of a pool; Mooncake's own settings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from kvpp_operator.api.base import quantity_bytes
from kvpp_operator.api.pooling import Mooncake
from kvpp_operator.catalogue.pools import LARGEST_SHARE, default_ports
from kvpp_operator.ports import LAST_PORT
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import shape
from kvpp_operator.rules.base import Fact, Remove, Set, rule
from kvpp_operator.rules.fragments import containers
from kvpp_operator.rules.pool_memcache import memcache_of
from kvpp_operator.rules.pool_support import pool_roles
from kvpp_operator.world import World

GIB = 2**30
LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS = re.compile(rf"(?P<host>{LABEL}(\.{LABEL})*\.?|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{{1,5}})\Z")
LONGEST_NAME = 253
MOONCAKE = "spec.pooling.mooncake"


def mooncake_of(resolved: Resolved) -> Mooncake | None:
    """The settings of the Mooncake backend, defaults where the user wrote none."""
    pooling = resolved.spec.pooling
    if pooling is None or pooling.backend != "Mooncake":
        return None
    return pooling.mooncake or Mooncake()


def addresses(resolved: Resolved) -> Iterator[tuple[str, str]]:
    """(path, address) of the external services."""
    memcache, mooncake = memcache_of(resolved), mooncake_of(resolved)
    if memcache is not None and memcache.meta_service.external is not None:
        external, base = memcache.meta_service.external, "spec.pooling.memcache.metaService.external"
        yield f"{base}.address", external.address
        if external.config_store_address is not None:
            yield f"{base}.configStoreAddress", external.config_store_address
    if mooncake is not None and mooncake.master.external is not None:
        yield f"{MOONCAKE}.master.external.address", mooncake.master.external.address


def is_address(text: str) -> bool:
    found = ADDRESS.match(text)
    return found is not None and is_host(found["host"]) and 1 <= int(found["port"]) <= LAST_PORT


def is_host(text: str) -> bool:
    """A name, or an IP address: what looks like one has to be one."""
    if text.startswith("[") or text.replace(".", "").isdigit():
        try:
            ipaddress.ip_address(text.strip("[]"))
        except ValueError:
            return False
    return len(text) <= LONGEST_NAME


def corrected(text: str, port: int) -> str:
    """What was meant, as far as it can be told: a URL's address, a host with the service's own port."""
    bare = re.sub(r"^[a-z]+://", "", text).strip().rstrip("/")
    host = f"[{bare}]" if bare.count(":") > 1 and not bare.startswith("[") else bare.rstrip(":")
    return next((guess for guess in (bare, f"{host}:{port}") if is_address(guess)), shape.EXAMPLES["address"])


@rule(
    "POOL040",
    severity="error",
    evidence="guide",
    source="contract, pooling: host:port of an existing service",
    message="{value} is no address of the form host:port.",
    fix="",
)
def address_unreadable(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An address that is not host:port."""
    for path, address in addresses(resolved):
        if not is_address(address):
            service = "mooncake-master" if path.startswith(MOONCAKE) else "meta-service"
            part = "store" if path.endswith("configStoreAddress") else "rpc"
            yield Fact(path, address, (Set(path, corrected(address, default_ports(service)[part])),))


OWN_HOSTS = ("localhost", "[::1]", "0.0.0.0", "[::]")  # noqa: S104 - nothing is bound here
"""Hosts that every pod takes for itself; a client of the unspecified address gets its own loopback."""


@rule(
    "POOL041",
    severity="warning",
    evidence="guide",
    source="launch facts 4.2: the address is reached from every engine's pod",
    message="{value} means the pod itself; the service of a pool is reached over the network.",
    fix="with the service's own name",
)
def address_is_loopback(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An address that every pod has for itself."""
    for path, address in addresses(resolved):
        host = address.rpartition(":")[0]
        if is_address(address) and (host in OWN_HOSTS or host.startswith("127.")):
            yield Fact(path, address, (Set(path, shape.EXAMPLES["address"]),))


def memories(resolved: Resolved) -> Iterator[tuple[str, str]]:
    memcache, mooncake = memcache_of(resolved), mooncake_of(resolved)
    if memcache is not None:
        yield "spec.pooling.memcache.memoryPerDevice", memcache.memory_per_device
    if mooncake is not None:
        yield f"{MOONCAKE}.memoryPerDevice", mooncake.memory_per_device


@rule(
    "POOL042",
    severity="error",
    evidence="guide",
    source="launch facts 4.2 and 4.3: sizes are whole GB, one for each NPU's process; memory on the fabric is given "
    "in whole GiB",
    message="Pool memory is lent in whole GiB, from 1Gi to 1Ti for each NPU; {value} is not.",
    fix="",
)
def memory_in_parts(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Pool memory that is no whole number of GiB."""
    for path, quantity in memories(resolved):
        size = quantity_bytes(quantity)
        if not GIB <= size <= LARGEST_SHARE or size % GIB:
            whole = min(max(1, round(size / GIB)), LARGEST_SHARE // GIB)
            yield Fact(path, quantity, (Set(path, f"{whole}Gi"),))


@rule(
    "POOL043",
    severity="error",
    evidence="guide",
    source="contract: pool memory and /dev/shm count in a memory limit if there is one",
    message="{devices} NPUs lend {pool} GiB to the pool, but the engine's container is limited to {value}; it would "
    "be killed.",
    fix="or lend less with memoryPerDevice",
)
def memory_limit_below_the_pool(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A memory limit that the pool alone exceeds."""
    lent = sum(quantity_bytes(quantity) for _path, quantity in memories(resolved))
    for role in pool_roles(resolved):
        for written in role.written:
            for path, container in containers(written):
                limit = memory_limit(container)
                if limit is not None and quantity_bytes(limit) < lent * role.devices_per_pod:
                    words = {"devices": role.devices_per_pod, "pool": lent * role.devices_per_pod // GIB}
                    place = f"{path}.resources.limits.memory"
                    yield Fact(place, limit, (Remove(place),), words)


def memory_limit(container: Any) -> str | None:
    resources = container.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    text = limits.get("memory") if isinstance(limits, dict) else None
    return (
        text
        if isinstance(text, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", text)
        else None
    )
