"""Before an engine is started on a host's ports, its claims and the spec that wanted it are looked at once more.

Without it, an engine that another operator no longer knows of starts on ports that somebody else has been given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvpp_operator.cluster.ledger import KEY
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.controller.claims import last_look
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.wire import dump
from kvpp_operator.manifest import API_VERSION, KIND, Key
from kvpp_operator.ports import PortRange

if TYPE_CHECKING:
    from kvpp_operator.cluster.client import Cluster
    from kvpp_operator.manifest import Manifest

OWNER = Owner("default", "glm", "u1")
DEPLOYMENT = Key(API_VERSION, KIND, OWNER.namespace, OWNER.name)
BODY = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"namespace": OWNER.namespace, "name": OWNER.name, "uid": OWNER.uid, "generation": 3},
}
ENGINE = Holder(OWNER, "prefill", 0, "r1")
CLAIMS = (Claim(PortRange(22000, 22008), ENGINE, KV), Claim(PortRange(61000, 61005), ENGINE, HOST))


class Answers:
    """An API server that has two objects."""

    def __init__(self, deployment: Manifest | None, ledger: Ledger | None) -> None:
        self.objects = {DEPLOYMENT: deployment, KEY: {"spec": dump(ledger)} if ledger is not None else None}

    async def get(self, key: Key) -> Manifest | None:
        return self.objects[key]


async def look(deployment: Manifest | None, ledger: Ledger | None, claims: tuple[Claim, ...] = CLAIMS) -> None:
    cluster: Any = Answers(deployment, ledger)
    typed: Cluster = cluster
    await last_look(typed, BODY, claims)


def changed(**metadata: Any) -> Manifest:
    return {**BODY, "metadata": {**BODY["metadata"], **metadata}}  # type: ignore[dict-item]


async def test_all_as_it_was() -> None:
    other = Claim(PortRange(22009, 22017), ENGINE._replace(engine=1), KV)
    await look(changed(resourceVersion="younger"), Ledger((*CLAIMS, other)))


@pytest.mark.parametrize(
    "deployment",
    [None, changed(generation=4), changed(uid="u2"), changed(deletionTimestamp="2026-11-30T00:00:00Z")],
    ids=["gone", "another spec", "a namesake", "going"],
)
async def test_the_spec_has_changed(deployment: Manifest | None) -> None:
    with pytest.raises(ClusterError, match="has changed meanwhile"):
        await look(deployment, Ledger(CLAIMS))


@pytest.mark.parametrize(
    "ledger",
    [
        None,
        Ledger(),
        Ledger(CLAIMS[:1]),
        Ledger((*CLAIMS, Claim(PortRange(22008, 22016), ENGINE._replace(engine=1), KV))),
    ],
    ids=["deleted", "emptied", "one is gone", "overlapped"],
)
async def test_the_claims_do_not_stand(ledger: Ledger | None) -> None:
    with pytest.raises(ClusterError, match="no longer has the claims"):
        await look(BODY, ledger)


async def test_who_starts_nothing_asks_nothing() -> None:
    await look(None, None, claims=())
