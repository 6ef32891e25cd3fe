"""memcache: its configuration files, key by key, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvpp_operator.api.pooling import Memcache
from kvpp_operator.catalogue import pools
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import memcache_keys as keys
from kvpp_operator.rules import paths, shape
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.pool_support import pool_roles
from kvpp_operator.world import World

BASE = "spec.pooling.memcache"
MEMCACHE = "memcache-hybrid 1.3.0, asked on loopback: a bad file makes the service exit 0 (launch facts 4.2)"


def memcache_of(resolved: Resolved) -> Memcache | None:
    """The settings of the memcache backend, defaults where the user wrote none."""
    pooling = resolved.spec.pooling
    if pooling is None or pooling.backend != "Memcache":
        return None
    return pooling.memcache or Memcache()


Files = tuple[str, Mapping[str, str], Mapping[str, keys.Form], Mapping[str, str]]


def files(resolved: Resolved) -> Iterator[Files]:
    """(path, what the user wrote, known keys, owned keys) of both configuration files."""
    memcache = memcache_of(resolved)
    if memcache is not None:
        yield f"{BASE}.metaConfig", memcache.meta_config, keys.META, keys.META_OWNED
        yield f"{BASE}.localConfig", memcache.local_config, keys.LOCAL, keys.LOCAL_OWNED


def is_storage(path: str, key: str) -> bool:
    return path.endswith("localConfig") and keys.STORAGE.fullmatch(key) is not None


@rule(
    "POOL030",
    severity="error",
    evidence="guide",
    source=MEMCACHE,
    message="memcache knows no key {key} here{suggestion}; an unknown key keeps the service from starting.",
    fix="",
)
def unknown_memcache_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A key that memcache's configuration does not have."""
    for path, given, known, _owned in files(resolved):
        for key, value in given.items():
            if key not in known and not is_storage(path, key):
                meant = shape.closest(key, known)
                place = paths.below(path, key)
                fix: tuple[Edit, ...] = (Remove(place),)
                if meant is not None and meant not in given and known[meant].takes(value):
                    fix = (Set(paths.below(path, meant), value), Remove(place))
                yield Fact(place, value, fix, {"key": key, "suggestion": f"; the closest is {meant}" if meant else ""})


@rule(
    "POOL031",
    severity="error",
    evidence="guide",
    source="contract, pooling.memcache; launch facts 4.2: both files must say the same",
    message="{key} belongs to {owner}.",
    fix="",
)
def owned_memcache_key(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A key of memcache's configuration that a field or the operator owns."""
    for path, given, _known, owned in files(resolved):
        for key, value in given.items():
            if key in owned:
                place = paths.below(path, key)
                yield Fact(place, value, (Remove(place),), {"key": key, "owner": owned[key]})


@rule(
    "POOL032",
    severity="error",
    evidence="guide",
    source=MEMCACHE,
    message="{key} must be {form}; {value} keeps the service from starting.",
    fix="",
)
def bad_memcache_value(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A value that memcache's configuration does not take."""
    for path, given, known, owned in files(resolved):
        for key, value in given.items():
            form = keys.TEXT if is_storage(path, key) else known.get(key, keys.TEXT)
            if key not in owned and not form.takes(value):
                place = paths.below(path, key)
                yield Fact(place, value, (Remove(place),), {"key": key, "form": form.words})


@rule(
    "POOL033",
    severity="error",
    evidence="guide",
    source=f"{MEMCACHE}: it does not start unless the high threshold is above the low one",
    message="Eviction starts at {high} % and stops at {low} %: the high threshold must be above the low one.",
    fix="",
)
def thresholds_out_of_order(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Eviction thresholds in the wrong order."""
    memcache = memcache_of(resolved)
    given = memcache.meta_config if memcache is not None else {}
    texts = {key: given.get(key, str(default)) for key, default in keys.EVICT_DEFAULTS.items()}
    if not all(keys.META[key].takes(text) for key, text in texts.items()):
        return
    high, low = (int(texts[key]) for key in (keys.EVICT_HIGH, keys.EVICT_LOW))
    if high <= low:
        wrote = [key for key in keys.EVICT_DEFAULTS if key in given]
        places = [paths.below(f"{BASE}.metaConfig", key) for key in wrote]
        yield Fact(places[0], given[wrote[0]], tuple(map(Remove, places)), {"high": high, "low": low})


@rule(
    "POOL034",
    severity="error",
    evidence="guide",
    source="launch facts 4.2 and 11.1 (Pools): world_size counts every local service, at most 1024; a change "
    "restarts the MetaService",
    message="{services} NPUs of {engines} engines would join the pool, but it takes {value} local services.",
    fix="or use fewer replicas or smaller engines",
)
def too_many_local_services(resolved: Resolved, _: World) -> Iterator[Fact]:
    """More NPUs than the pool can count."""
    memcache = memcache_of(resolved)
    if memcache is None:
        return
    said = memcache.local_config.get(keys.WORLD_SIZE, str(pools.WORLD_SIZE))
    limit = int(said) if keys.LOCAL[keys.WORLD_SIZE].takes(said) else pools.WORLD_SIZE
    for role in pool_roles(resolved):
        services = role.replicas * role.devices
        if services > limit:
            path = f"{role.path}.replicas"
            fix: tuple[Edit, ...] = (Set(path, limit // role.devices),)
            if services <= pools.WORLD_SIZE:
                fix = (Remove(paths.below(f"{BASE}.localConfig", keys.WORLD_SIZE)),)
            yield Fact(path, limit, fix, {"services": services, "engines": role.replicas})


def device_protocols(chip: str, interconnect: str) -> tuple[str, ...]:
    """Protocols of the NPUs' own network, the default first; A3 reaches its RoCE ports over HCCS too."""
    default = pools.DEFAULT_PROTOCOL.get((chip, interconnect))
    also = ("DeviceRdma",) if default == "DeviceSdma" else ()
    return (default, *also) if default else ()


@rule(
    "POOL035",
    severity="error",
    evidence="guide",
    source="launch facts 4.2: device_rdma on A2, device_sdma on A3, device_urma or device_uboe on 950; launch facts 11.1 (Pools): "
    "device_sdma is wrong "
    "over RoCE",
    message="{value} is no protocol of {fabric}; there it is {legal}, or one of the host's.",
    fix="or leave protocol out: it follows from chip and interconnect",
)
def protocol_of_another_fabric(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A pool protocol that chip and interconnect don't speak."""
    memcache = memcache_of(resolved)
    if memcache is None or memcache.protocol is None:
        return
    for role in pool_roles(resolved):
        fabric = f"{role.accelerator.chip.name}/{role.accelerator.interconnect}"
        legal = device_protocols(role.accelerator.chip.name, role.accelerator.interconnect)
        is_ub = role.accelerator.interconnect in ("UB", "UBoE")
        wrong = memcache.protocol.startswith("Device") and memcache.protocol not in legal
        if legal and (wrong or (memcache.protocol == "HostUrma" and not is_ub)):
            path = f"{BASE}.protocol"
            yield Fact(path, memcache.protocol, (Set(path, legal[0]),), {"fabric": fabric, "legal": " or ".join(legal)})


@rule(
    "POOL036",
    severity="warning",
    evidence="guide",
    source="launch facts 4.2: A3 device_sdma needs LingQu 1.5 or newer",
    message="DeviceSdma on A3 needs LingQu 1.5 or newer on every node; the operator can't see that.",
    fix="",
)
def driver_for_device_sdma(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A protocol that needs a newer driver."""
    memcache = memcache_of(resolved)
    fabrics = {(role.accelerator.chip.name, role.accelerator.interconnect) for role in pool_roles(resolved)}
    if memcache is not None and memcache.protocol == "DeviceSdma" and ("A3", "HCCS") in fabrics:
        yield Fact(f"{BASE}.protocol", "DeviceSdma", (Remove(f"{BASE}.protocol"),))


@rule(
    "POOL037",
    severity="warning",
    evidence="guide",
    source="contract, memcache.protocol; launch facts 4.2: shared memory reaches one host",
    message="HostShm reaches the pods of one host only; {engines} engines on several hosts share nothing through it.",
    fix="",
)
def shared_memory_between_hosts(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Shared memory as the pool's protocol for several engines."""
    memcache = memcache_of(resolved)
    engines = sum(role.replicas * role.nodes for role in pool_roles(resolved))
    if memcache is not None and memcache.protocol == "HostShm" and engines > 1:
        yield Fact(f"{BASE}.protocol", "HostShm", (Remove(f"{BASE}.protocol"),), {"engines": engines})


@rule(
    "POOL038",
    severity="error",
    evidence="guide",
    until="0.29.0rc1",
    source="launch facts 4.2: memcache 1.2 up to 0.29, 1.3 from 0.30 on; both services asked key by key on loopback",
    message="The memcache of vLLM Ascend {release} does not know {key}; an unknown key keeps it from starting. {first} has it.",
    fix="or set engine.version to {first} or newer",
)
def memcache_key_before_its_release(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A key of memcache that came later."""
    later = {"metaConfig": pools.SINCE_1_3_0, "localConfig": pools.LOCAL_SINCE_1_3_0}
    for path, given, _known, _owned in files(resolved):
        for key, value in given.items():
            if key in later[path.rpartition(".")[2]]:
                place = paths.below(path, key)
                yield Fact(place, value, (Remove(place),), {"key": key})
