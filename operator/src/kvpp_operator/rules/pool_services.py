"""Addresses, sizes and the services of a pool; Mooncake's own settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvpp_operator.api.base import quantity_bytes
from kvpp_operator.api.pooling import Mooncake
from kvpp_operator.catalogue.pools import LARGEST_SHARE
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths, shape
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.fragments import containers
from kvpp_operator.rules.memcache_keys import LEASE
from kvpp_operator.rules.pool_memcache import memcache_of
from kvpp_operator.rules.pool_support import pool_roles
from kvpp_operator.world import World

GIB = 2**30
ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})\Z")
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
    return found is not None and 1 <= int(found["port"]) <= 65535  # noqa: PLR2004 - ports


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
            bare = re.sub(r"^[a-z]+://", "", address).strip().rstrip("/")
            yield Fact(path, address, (Set(path, bare if is_address(bare) else shape.EXAMPLES["address"]),))


@rule(
    "POOL041",
    severity="warning",
    evidence="guide",
    source="launch facts 4.2: the address is reached from every engine's pod",
    message="{value} is the pod's own loopback; the service of a pool is reached over the network.",
    fix="with the service's own name",
)
def address_is_loopback(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An address that every pod has for itself."""
    for path, address in addresses(resolved):
        host = address.rpartition(":")[0]
        if is_address(address) and (host in ("localhost", "[::1]") or host.startswith("127.")):
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


CONFIG_OWNED = {
    "master_server_address": "the operator, which knows where the master is",
    "global_segment_size": f"{MOONCAKE}.memoryPerDevice",
    "metadata_server": "the operator: engines find each other by hand-shake",
    "protocol": "the operator: Ascend's transport is the only one",
}
CONFIG_KNOWN = (*CONFIG_OWNED, "device_name", "preferred_segment", "prefer_alloc_in_same_node", "enable_ssd_offload",
                "ssd_offload_path", "tenant_id")  # fmt: skip


@rule(
    "POOL044",
    severity="error",
    evidence="guide",
    source="launch facts 4.3: mooncake.json; contract, pooling.mooncake",
    message="{key} of mooncake.json belongs to {owner}.",
    fix="",
)
def owned_mooncake_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A key of mooncake.json that a field or the operator owns."""
    mooncake = mooncake_of(resolved)
    for key, value in mooncake.config.items() if mooncake is not None else ():
        if key in CONFIG_OWNED:
            place = f"{MOONCAKE}.config.{key}"
            yield Fact(place, value, (Remove(place),), {"key": key, "owner": CONFIG_OWNED[key]})


@rule(
    "POOL045",
    severity="warning",
    evidence="guide",
    source="launch facts 4.3: the keys of mooncake.json",
    message="mooncake.json has no key {key}{suggestion}; it has no effect.",
    fix="",
)
def unknown_mooncake_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A key that mooncake.json does not have."""
    mooncake = mooncake_of(resolved)
    for key, value in mooncake.config.items() if mooncake is not None else ():
        if key not in CONFIG_KNOWN:
            meant = shape.closest(key, CONFIG_KNOWN)
            place = paths.below(f"{MOONCAKE}.config", key)
            yield Fact(
                place, value, (Remove(place),), {"key": key, "suggestion": f"; the closest is {meant}" if meant else ""}
            )


MASTER_OWNED = ("port", "rpc_port", "metrics_port", "rpc_address", "enable_http_metadata_server")
TRANSFER_TIMEOUT = 10000
"""Milliseconds of both variables below, as rendered (launch facts 11.1)."""

TIMEOUTS = ("ASCEND_CONNECT_TIMEOUT", "ASCEND_TRANSFER_TIMEOUT")


def transfer_timeout(resolved: Resolved) -> int:
    """The longest time that a transfer may take: ours, or what the user sets."""
    said = [variable.value or "" for role in resolved.roles for variable in role.env if variable.name in TIMEOUTS]
    return max([TRANSFER_TIMEOUT, *(int(text) for text in said if text.isascii() and text.isdigit())])


def master_flags(mooncake: Mooncake) -> Iterator[tuple[list[int], str, str]]:
    """(indices, name, value) of mooncake_master's flags: `--name=value`, `-name value`, dashes as underscores."""
    arguments = mooncake.master.args
    for index, token in enumerate(arguments):
        if token.startswith("-"):
            name, equals, value = token.lstrip("-").partition("=")
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            taken = [index] if equals or following.startswith("-") or not following else [index, index + 1]
            yield taken, name.replace("-", "_"), value if equals else following if len(taken) > 1 else ""


def without(indices: list[int]) -> tuple[Edit, ...]:
    return tuple(Remove(f"{MOONCAKE}.master.args[{index}]") for index in indices)


@rule(
    "POOL046",
    severity="error",
    evidence="guide",
    source="launch facts 4.3 and 2.4: ports of mooncake_master",
    message="--{name} of mooncake_master is the operator's: it plans the master's ports and tells the engines.",
    fix="",
)
def owned_master_argument(resolved: Resolved, _: World) -> Iterator[Fact]:
    """An argument of the master that the operator owns."""
    mooncake = mooncake_of(resolved)
    for indices, name, value in master_flags(mooncake) if mooncake is not None else ():
        if name in MASTER_OWNED:
            yield Fact(f"{MOONCAKE}.master.args[{indices[0]}]", value or name, without(indices), {"name": name})


@rule(
    "POOL047",
    severity="error",
    evidence="guide",
    source="launch facts 4.3: the lease must outlive ASCEND_CONNECT_TIMEOUT and ASCEND_TRANSFER_TIMEOUT (10000 ms unless set)",
    message="A lease of {value} ms ends before a transfer may ({limit} ms): blocks would vanish while they are read.",
    fix="",
)
def lease_shorter_than_a_transfer(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A lease that ends before transfers time out."""
    mooncake, memcache = mooncake_of(resolved), memcache_of(resolved)
    limit = transfer_timeout(resolved)
    for indices, name, value in master_flags(mooncake) if mooncake is not None else ():
        if name == "default_kv_lease_ttl" and is_at_most(value, limit):
            yield Fact(f"{MOONCAKE}.master.args[{indices[0]}]", int(value), without(indices), {"limit": limit})
    lease = memcache.meta_config.get(LEASE, "") if memcache is not None else ""
    if is_at_most(lease, limit):
        path = paths.below("spec.pooling.memcache.metaConfig", LEASE)
        yield Fact(path, int(lease), (Remove(path),), {"limit": limit})


def is_at_most(text: str, limit: int) -> bool:
    """Whether a text is a number of milliseconds up to a limit; other texts are another rule's."""
    return text.isascii() and text.isdigit() and 1 <= int(text) <= limit
