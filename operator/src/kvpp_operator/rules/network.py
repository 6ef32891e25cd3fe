"""Network: window, reserved ports, pins on the pod network. What the ledger answers is judged in `claims`."""

from __future__ import annotations

from collections.abc import Iterator

from kvpp_operator.ports import LAST_PORT, PortRange, reserved_ranges
from kvpp_operator.resolve import Resolved, ResolvedRole, as_port_range
from kvpp_operator.rules.base import Cel, Fact, Remove, Set, rule
from kvpp_operator.world import World

WINDOW, RESERVED = "spec.networking.kvPorts", "spec.networking.reservedPorts"


@rule(
    "NET001",
    severity="error",
    evidence="guide",
    source="contract, networking.kvPorts: {first, last}",
    message="The window of kv ports ends before it begins: first must not be above last.",
    fix="",
    cel=(
        Cel(
            "!has(self.networking.kvPorts) || self.networking.kvPorts.first <= self.networking.kvPorts.last",
            field_path=".networking.kvPorts",
        ),
    ),
)
def window_out_of_order(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A window whose end lies before its start."""
    window = resolved.spec.networking.kv_ports
    if window is not None and window.first > window.last:
        yield Fact(
            WINDOW,
            [window.first, window.last],
            (Set(f"{WINDOW}.first", window.last), Set(f"{WINDOW}.last", window.first)),
        )


@rule(
    "NET002",
    severity="error",
    evidence="guide",
    source="contract, networking.reservedPorts: numbers from 1 to 65535, or first-last in order",
    message="{value} is no port and no range of ports from 1 to 65535.",
    fix="",
)
def reserved_ports_unreadable(resolved: Resolved, _: World) -> Iterator[Fact]:
    """A reserved port that is none."""
    for index, entry in enumerate(resolved.spec.networking.reserved_ports):
        if as_port_range(entry) is None:
            yield Fact(f"{RESERVED}[{index}]", entry, (Remove(f"{RESERVED}[{index}]"),))


def pinned(resolved: Resolved) -> Iterator[tuple[ResolvedRole, int, int]]:
    """(role, pin, ports of its block) of the roles with kv ports; on the pod network all replicas have one block."""
    for role in resolved.roles:
        if role.role.kv_port is not None and role.name != "unified":
            yield role, role.role.kv_port, role.kv_block_length


def block_of(pin: int, length: int) -> PortRange | None:
    """The pinned ports, None when they pass the last port there is."""
    return PortRange.of(pin, length) if pin + length - 1 <= LAST_PORT else None


@rule(
    "NET003",
    severity="error",
    evidence="guide",
    source="seed guide, PD Disaggregation: choose non-overlapping port ranges; launch facts 2.1: N + DP ports each",
    message="Decode's block {decode} overlaps prefill's block {prefill}: prefill takes {length} ports from its pin "
    "(DP x PP x PCP x TP + DP for each block).",
    fix="or pin decode at {free} or above",
)
def pins_overlap(resolved: Resolved, _: World) -> Iterator[Fact]:
    """On the pod network: pins of prefill and decode that overlap."""
    if resolved.spec.networking.host_network:
        return
    pins = {role.name: (pin, length) for role, pin, length in pinned(resolved)}
    if len(pins) < 2:  # noqa: PLR2004 - two sides
        return
    first, second = (block_of(*pins[name]) for name in ("prefill", "decode"))
    if first is not None and second is not None and first.overlaps(second):
        words = {"prefill": first, "decode": second, "length": pins["prefill"][1], "free": first.last + 1}
        yield Fact("spec.decode.kvPort", pins["decode"][0], (Remove("spec.decode.kvPort"),), words)


@rule(
    "NET004",
    severity="warning",
    evidence="guide",
    source="launch facts 2.2 and 11.1 (Transport range): the transport and Mooncake pick ports in these ranges; contract, kv blocks",
    message="The block {block} lies in {range} ({name}): {harm}.",
    fix="or pin a block in {window}",
)
def pin_in_a_range_of_others(resolved: Resolved, _: World) -> Iterator[Fact]:
    """On the pod network: a pin where others pick their ports."""
    if resolved.spec.networking.host_network:
        return
    window = resolved.spec.networking.kv_ports or resolved.configuration.kv_ports
    listed = [block for entry in resolved.spec.networking.reserved_ports if (block := as_port_range(entry)) is not None]
    for role, pin, length in pinned(resolved):
        block = block_of(pin, length)
        for reserved in reserved_ranges(role.accelerator.devices_per_node, listed):
            if block is not None and block.overlaps(reserved.block):
                words = {"block": block, "range": reserved.block, "name": reserved.name, "harm": reserved.harm,
                         "window": f"{window.first}-{window.last}"}  # fmt: skip
                yield Fact(f"{role.path}.kvPort", pin, (Remove(f"{role.path}.kvPort"),), words)


ENGINE = {8000: "the API", 29500: "the data-parallel master", 29501: "the torch master", 29550: "data-parallel RPC"}
"""What an engine itself listens on in its pod (launch facts 2.3)."""


@rule(
    "NET005",
    severity="error",
    evidence="guide",
    source="launch facts 2.3: ports that the engine listens on in the same pod",
    message="The block {block} holds port {port}, where the same engine listens for {what}.",
    fix="",
)
def pin_on_a_port_of_the_engine(resolved: Resolved, _: World) -> Iterator[Fact]:
    """On the pod network: a pin on a port of the engine itself."""
    if resolved.spec.networking.host_network:
        return
    for role, pin, length in pinned(resolved):
        block = block_of(pin, length)
        taken = [port for port in ENGINE if block is not None and port in block]
        if taken:
            words = {"block": block, "port": taken[0], "what": ENGINE[taken[0]]}
            yield Fact(f"{role.path}.kvPort", pin, (Remove(f"{role.path}.kvPort"),), words)


@rule(
    "NET006",
    severity="warning",
    evidence="guide",
    source="launch facts 11.1: on the host network an unset Gloo interface may fall back to loopback; vllm-ascend #4103",
    message="An engine of several pods on the host network, and no interface is named: Gloo and HCCL pick one of the host's, at worst "
    "loopback.",
    fix="with the name of your hosts' interface, or set networking.interface in the operator's configuration",
)
def host_network_without_interface(resolved: Resolved, _: World) -> Iterator[Fact]:
    """Several pods of an engine on the host network without a named interface."""
    networking = resolved.spec.networking
    is_named = networking.interface or resolved.configuration.interface
    if networking.host_network and not is_named and any(role.nodes > 1 for role in resolved.roles):
        yield Fact("spec.networking.interface", None, (Set("spec.networking.interface", "eth0"),))
