"""Mooncake's own settings: mooncake.json, arguments of the master, leases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvpp_operator.api.pooling import Mooncake
from kvpp_operator.catalogue import pools
from kvpp_operator.resolve import Resolved
from kvpp_operator.rules import paths, shape
from kvpp_operator.rules.base import Edit, Fact, Remove, Set, rule
from kvpp_operator.rules.memcache_keys import LEASE
from kvpp_operator.rules.pool_memcache import memcache_of
from kvpp_operator.rules.pool_services import MOONCAKE, mooncake_of
from kvpp_operator.world import World

CONFIG_OWNED = {
    "master_server_address": "the operator, which knows where the master is",
    "global_segment_size": f"{MOONCAKE}.memoryPerDevice",
    "metadata_server": "the operator: engines find each other by hand-shake",
    "protocol": "the operator: Ascend's transport is the only one",
}
CONFIG_KNOWN = (*CONFIG_OWNED, "device_name", "preferred_segment", "prefer_alloc_in_same_node", "enable_ssd_offload",
                "ssd_offload_path", "tenant_id", "local_buffer_size")  # fmt: skip


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


SWITCHES = ("preferred_segment", "prefer_alloc_in_same_node", "enable_ssd_offload")
TEXTS = ("device_name", "ssd_offload_path", "tenant_id")


@rule(
    "POOL048",
    severity="error",
    evidence="guide",
    source='launch facts 4.3: mooncake.json; JSON: the text "false" counts as true',
    message="{key} of mooncake.json must be {expected}.",
    fix="",
)
def wrong_kind_of_mooncake_value(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A value of mooncake.json of the wrong type."""
    mooncake = mooncake_of(resolved)
    for key, value in mooncake.config.items() if mooncake is not None else ():
        expected = None
        if key in SWITCHES and not isinstance(value, bool):
            expected = "true or false, without quotes"
        elif key in TEXTS and not isinstance(value, str):
            expected = "text"
        if expected is not None:
            place = f"{MOONCAKE}.config.{key}"
            yield Fact(place, value, (Remove(place),), {"key": key, "expected": expected})


MASTER_OWNED = ("port", "rpc_port", "metrics_port", "rpc_address", "enable_http_metadata_server")
TRANSFER_TIMEOUT = 10000
"""Milliseconds of both variables below, as rendered (launch facts 11.1)."""

LEASE_FLAG = "default_kv_lease_ttl"
LEASE_MARGIN = pools.MASTER_LEASE_MILLISECONDS - TRANSFER_TIMEOUT
TIMEOUTS = ("ASCEND_CONNECT_TIMEOUT", "ASCEND_TRANSFER_TIMEOUT")


def transfer_timeout(resolved: Resolved) -> int:
    """The longest time that a transfer may take: ours, or what the user sets."""
    said = [variable.value or "" for role in resolved.roles for variable in role.env if variable.name in TIMEOUTS]
    return max([TRANSFER_TIMEOUT, *(int(text) for text in said if text.isascii() and text.isdigit())])


def master_flags(mooncake: Mooncake | None) -> Iterator[tuple[list[int], str, str]]:
    """(indices, name, value) of mooncake_master's flags: `--name=value`, `-name value`, dashes as underscores."""
    arguments = mooncake.master.args if mooncake is not None else []
    for index, token in enumerate(arguments):
        if token.startswith("-"):
            name, equals, value = token.lstrip("-").partition("=")
            name = name.partition(" ")[0]
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            taken = [index] if equals or following.startswith("-") or not following else [index, index + 1]
            yield taken, name.replace("-", "_"), value if equals else following if len(taken) > 1 else ""


def without(indices: Sequence[int]) -> tuple[Edit, ...]:
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
    for indices, name, value in master_flags(mooncake):
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
    for indices, name, value in master_flags(mooncake):
        if name == LEASE_FLAG and is_at_most(value, limit):
            fix = with_lease(mooncake, limit, indices)
            yield Fact(f"{MOONCAKE}.master.args[{indices[0]}]", int(value), fix, {"limit": limit})
    is_ours = mooncake is not None and mooncake.master.external is None
    if is_ours and LEASE_FLAG not in (name for _, name, _ in master_flags(mooncake)):
        ours = pools.MASTER_LEASE_MILLISECONDS
        if ours <= limit:
            yield Fact(f"{MOONCAKE}.master.args", ours, with_lease(mooncake, limit), {"limit": limit})
    lease = memcache.meta_config.get(LEASE, "") if memcache is not None else ""
    if is_at_most(lease, limit):
        path = paths.below("spec.pooling.memcache.metaConfig", LEASE)
        yield Fact(path, int(lease), (Remove(path),), {"limit": limit})


def with_lease(mooncake: Mooncake | None, limit: int, given: Sequence[int] = ()) -> tuple[Edit, ...]:
    """Take out a lease that is given, for the default; or set one where the default is too short, too."""
    assert mooncake is not None
    if limit < pools.MASTER_LEASE_MILLISECONDS:
        return without(given)
    others = [argument for index, argument in enumerate(mooncake.master.args) if index not in given]
    return (Set(f"{MOONCAKE}.master.args", [*others, f"--{LEASE_FLAG}={limit + LEASE_MARGIN}"]),)


def is_at_most(text: str, limit: int) -> bool:
    """Whether a text is a number of milliseconds up to a limit; other texts are another rule's."""
    return text.isascii() and text.isdigit() and 1 <= int(text) <= limit
