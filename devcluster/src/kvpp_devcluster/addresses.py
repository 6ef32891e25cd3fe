"""Addresses of simulated nodes and pods.  Nothing listens on them."""

from __future__ import annotations

from typing import Any


class Addresses:
    """Gives every node and every pod an address of its own, never one that is in use."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}  # uid of a pod or name of a node, by address
        self._given: dict[str, str] = {}  # and the other way round

    def note(self, item: dict[str, Any]) -> None:
        """Keep the address that a Node or a Pod has already."""
        status = item.get("status", {})
        if "podIP" in status and not item["spec"].get("hostNetwork"):
            self._give(item["metadata"]["uid"], status["podIP"])
        for address in status.get("addresses", []):
            if address["type"] == "InternalIP":
                self._give(item["metadata"]["name"], address["address"])

    def of_node(self, name: str) -> str:
        return self._given.get(name) or self._give(name, self._unused("10.1"))

    def of_pod(self, pod: dict[str, Any]) -> str:
        uid = pod["metadata"]["uid"]
        return self._given.get(uid) or self._give(uid, self._unused("10.244"))

    def release(self, uid: str) -> None:
        self._taken.pop(self._given.pop(uid, ""), None)

    def _give(self, owner: str, address: str) -> str:
        self._taken[address], self._given[owner] = owner, address
        return address

    def _unused(self, network: str) -> str:
        count = len(self._taken)
        numbers = (number % 62500 for number in range(count, count + 62500))
        addresses = (f"{network}.{number // 250}.{number % 250 + 1}" for number in numbers)
        return next(address for address in addresses if address not in self._taken)
