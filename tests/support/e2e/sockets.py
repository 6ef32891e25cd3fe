"""What listens on a host, read where the kernel tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvpp_devcluster.host import Host

LISTEN = "0A"


def listening(host: Host) -> set[int]:
    """TCP ports of the host's own network namespace: /proc/net/tcp, fields local_address and st."""
    tables = (host.enter("cat", f"/proc/net/{table}") for table in ("tcp", "tcp6"))
    rows = (line.split() for table in tables for line in table.splitlines()[1:])
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTEN}


def within(ports: Iterable[int], first: int, last: int) -> list[int]:
    return sorted(port for port in ports if first <= port <= last)
