"""What an argument, a variable or a port may be before an engine's ports are known and a pod's escaping is done.

A template is kept with a revision and filled in for each engine: ports stand in it as `PortRef`. What only the pod knows
stands as `PodRef`. `for_pod` and `for_people` give the two written forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PortRef:
    """A port of the engine by its name (`EnginePorts.numbers`), or the one `offset` above it."""

    slot: str
    offset: int = 0

    def number(self, ports: Mapping[str, int]) -> int:
        return ports[self.slot] + self.offset


@dataclass(frozen=True)
class PodRef:
    """`$(NAME)`: what the kubelet puts in, from the container's environment."""

    name: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.prefix}$({self.name})"


@dataclass(frozen=True)
class Json:
    """A JSON argument; `PortRef` may stand anywhere in it as a number."""

    value: Any


Token = str | PortRef | PodRef | Json


def compact(value: Any) -> str:
    """JSON without blanks, Unicode as it is, in the order given: what a person can read back from `ps`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def escape(text: str) -> str:
    """Literal text as a pod's args want it: the kubelet reads `$(X)` as a variable and `$$` as one dollar sign."""
    return re.sub(r"\$(?=[$(])", "$$", text) if "$" in text else text


def with_ports(value: Any, ports: Mapping[str, int]) -> Any:
    """The value with each `PortRef` replaced by its number."""
    if isinstance(value, PortRef):
        return value.number(ports)
    if isinstance(value, dict):
        return {key: with_ports(item, ports) for key, item in value.items()}
    if isinstance(value, list):
        return [with_ports(item, ports) for item in value]
    return value


def for_people(token: Token, ports: Mapping[str, int]) -> str:
    """What vLLM receives; what only the pod knows is `$(NAME)`."""
    if isinstance(token, Json):
        return compact(with_ports(token.value, ports))
    return str(token.number(ports)) if isinstance(token, PortRef) else str(token)
