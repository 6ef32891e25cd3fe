"""Put back a hand edit that server-side apply alone cannot undo.

Apply never removes what another manager owns.  Where one of two fields excludes the other (`strategy.rollingUpdate`
beside Recreate, a volume's second source, `value` beside `valueFrom`, a probe's second handler), the server refuses the
whole apply as invalid for as long as the other field stays: kubernetes-sigs/structured-merge-diff has no unions.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kvpp_operator.cluster.client import Patch
from kvpp_operator.cluster.satisfied import merge_keys
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import Manifest, key_of

if TYPE_CHECKING:
    from kvpp_operator.cluster.client import Cluster

MANAGER = "kvpp-operator-repair"
ATTEMPTS = 5
# Kinds that take a strategic merge patch, and whose spec holds nothing that the server has to allocate.
REPAIRABLE = frozenset({"Deployment"})


async def repair(cluster: Cluster, wish: Manifest, live: Manifest) -> Manifest:
    """Clear what stands beside our fields in `spec`, apply, and leave no second manager behind.

    Cleared defaults are filled in anew.  Items that others added to keyed lists (a mesh's sidecar) stay.
    """
    key = key_of(wish)
    clearing = {"metadata": {"uid": live["metadata"]["uid"]}, "spec": _cleared(("spec",), wish["spec"], live["spec"])}
    await cluster.patch(key, clearing, form=Patch.STRATEGIC, manager=MANAGER)
    return await _forget(cluster, await cluster.apply(wish))


async def _forget(cluster: Cluster, live: Manifest) -> Manifest:
    """Take the repair's share in our fields away: it would keep them when we no longer wish them."""
    for _ in range(ATTEMPTS):
        managers = [entry["manager"] for entry in live["metadata"]["managedFields"]]
        if MANAGER not in managers:
            return live
        path = f"/metadata/managedFields/{managers.index(MANAGER)}"
        steps = [{"op": "test", "path": f"{path}/manager", "value": MANAGER}, {"op": "remove", "path": path}]
        try:
            return await cluster.patch(key_of(live), steps, form=Patch.JSON, manager=MANAGER)
        except ClusterError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            live = await cluster.get(key_of(live)) or live  # another manager has written, and the places changed
    return live


def _cleared(path: tuple[str, ...], wish: Any, live: Any) -> Any:
    """Our wish, with an explicit null for each name that only the live object has."""
    if isinstance(wish, dict) and isinstance(live, dict):
        nulls = dict.fromkeys(live.keys() - wish.keys())
        return {**nulls, **{name: _cleared((*path, name), value, live.get(name)) for name, value in wish.items()}}
    keys = merge_keys(path)
    if isinstance(wish, list) and isinstance(live, list) and keys:
        found = {tuple(item.get(key) for key in keys): item for item in live}
        return [_cleared(path, item, found.get(tuple(item.get(key) for key in keys))) for item in wish]
    return wish
