"""EndpointSlices → endpoints. Each Service selects one role and one revision; its slices carry its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvpp_operator import names
from kvpp_operator.router.members import ROLES, Endpoint, Member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvpp_operator.manifest import Manifest

PORT_NAME = "http"


def endpoints(slices: Iterable[Manifest]) -> frozenset[Endpoint]:
    """Every head of every revision. An address that two slices name counts as serving only if both say so."""
    found: dict[tuple[Member, str, str], Endpoint] = {}
    for piece in slices:
        for endpoint in endpoints_of(piece):
            key = (endpoint.member, endpoint.revision, endpoint.pod)
            if key not in found or not endpoint.serving:
                found[key] = endpoint
    return frozenset(found.values())


def endpoints_of(piece: Manifest) -> Iterator[Endpoint]:
    labels = piece["metadata"].get("labels") or {}
    role, revision = labels.get(names.ROLE), labels.get(names.REVISION)
    if role not in ROLES or not revision or piece.get("addressType") != "IPv4":
        return  # the proxy splits host:port at the first colon, so IPv6 can't be a member (launch facts 5.1)
    for port in piece.get("ports") or ():
        if port.get("name") != PORT_NAME or not port.get("port"):
            continue
        for endpoint in piece.get("endpoints") or ():
            pod = (endpoint.get("targetRef") or {}).get("uid", "")
            for address in endpoint.get("addresses") or ():
                yield Endpoint(Member(role, f"{address}:{port['port']}"), revision, is_serving(endpoint), pod)


def is_serving(endpoint: dict[str, Any]) -> bool:
    """Terminating endpoints may still serve, but every new request would be cut off or would keep them from leaving."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating")
