"""One address, several spellings: how an engine comes back while the proxy still sets its old entry aside.

The proxy knows its members by their text. What it has set aside it takes back only when no request runs, which under steady
load is never; the same engine under another spelling is somebody new to it. An IPv4 address may be written with its last
octets as one number (inet_aton(3)): `10.1.2.3`, `10.1.515`, `10.66051`, `167838211`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvpp_operator.router.members import Member

OCTETS = 4


def spellings(member: Member) -> tuple[Member, ...]:
    """The plain spelling first; just that one for what is no IPv4 address."""
    host, _, port = member.address.rpartition(":")
    number = number_of(host)
    if number is None:
        return (member,)
    octets = [number >> shift & 255 for shift in (24, 16, 8, 0)]
    written = (
        ".".join([*map(str, octets[:kept]), str(number & (1 << 8 * (OCTETS - kept)) - 1)])
        for kept in range(OCTETS - 1, -1, -1)
    )
    return tuple(replace(member, address=f"{text}:{port}") for text in written)


def plain(member: Member) -> Member:
    return spellings(member)[0]


def number_of(host: str) -> int | None:
    """The address as a number; None for names."""
    parts = host.split(".")
    if len(parts) > OCTETS or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    *octets, last = map(int, parts)
    room = 8 * (OCTETS - len(octets))
    if last >= 1 << room or any(octet > 255 for octet in octets):  # noqa: PLR2004 - an octet's limit
        return None
    return sum(octet << 24 - 8 * place for place, octet in enumerate(octets)) + last
