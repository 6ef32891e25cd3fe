"""Kubernetes Events, one for each transition of a condition: the difference of two statuses, said once.

The name of an Event is made of what it says, so a repeated transition counts up the Event that is there already, also
after a restart of the operator; nothing is remembered here.  Format: events.k8s.io/v1.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kvpp_operator import names
from kvpp_operator.cluster.client import Conflict, Patch
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import Manifest, key_of
from kvpp_operator.report import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvpp_operator.cluster.client import Cluster

logger = logging.getLogger(__name__)

NOTE_LIMIT = 1024  # bytes: k8s.io/kubernetes pkg/apis/core/validation/events.go
# Both follow from the others; an Event of their own would say the same twice.
QUIET = frozenset({reasons.RECONCILING, reasons.STALLED})


@dataclass(frozen=True, slots=True)
class Transition:
    """A condition that changed in a way that a person may want to know."""

    reason: str
    note: str
    warning: bool


def transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Transition, ...]:
    """Compare the conditions of two statuses.

    A condition that is seen for the first time is news only if it is good or bad, not if it only says "not yet".
    """
    old = {condition["type"]: condition for condition in before.get("conditions") or ()}
    found = []
    for condition in after.get("conditions") or ():
        warning = _is_warning(condition)
        was = old.get(condition["type"])
        if condition["type"] in QUIET or condition["status"] == "Unknown":
            continue
        is_news = _differs(was, condition, warning) if was else warning or condition["status"] == "True"
        if is_news:
            found.append(Transition(condition["reason"], condition.get("message", ""), warning))
    return tuple(found)


def _differs(was: Mapping[str, Any], condition: Mapping[str, Any], warning: bool) -> bool:  # noqa: FBT001
    if (was["status"], was.get("reason")) != (condition["status"], condition.get("reason")):
        return True
    # A new spec that is wrong in another way; not the same trouble with another number in its text.
    spec_changed = was.get("observedGeneration") != condition.get("observedGeneration")
    return warning and spec_changed and was.get("message") != condition.get("message")


def _is_warning(condition: Mapping[str, Any]) -> bool:
    known = reasons.BY_NAME.get((condition["type"], condition.get("reason", "")))
    return known is not None and known.warning


class Announcer:
    """Posts Events.  A failure to post is logged and no more: the status says the same, and stays."""

    def __init__(self, instance: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._instance = instance[:128]
        self._clock = clock

    async def __call__(self, cluster: Cluster, body: Manifest, status: Mapping[str, Any]) -> None:
        """Announce what changed from the status in `body` to `status`."""
        for transition in transitions(body.get("status") or {}, status):
            try:
                await self._post(cluster, body, transition)
            except ClusterError as error:
                logger.warning("event not posted", extra={"reason": transition.reason, "error": error.message})

    async def _post(self, cluster: Cluster, body: Manifest, transition: Transition) -> None:
        event = self._event(body, transition)
        created = await cluster.create(event)
        if not isinstance(created, Conflict):
            return
        live = await cluster.get(created.key)
        if live is None:
            return  # it expired in between; the next transition starts a new one
        count = (live.get("series") or {}).get("count", 1) + 1
        series = {"count": count, "lastObservedTime": event["eventTime"]}
        await cluster.patch(key_of(live), {"series": series}, form=Patch.MERGE)

    def _event(self, body: Manifest, transition: Transition) -> Manifest:
        meta = body["metadata"]
        note = transition.note.encode()[:NOTE_LIMIT].decode(errors="ignore")
        identity = "\n".join((meta["uid"], transition.reason, note))
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
                "namespace": meta["namespace"],
            },
            "eventTime": self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"{names.DOMAIN}/{names.FIELD_MANAGER}",
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": transition.reason,
            "note": note,
            "type": "Warning" if transition.warning else "Normal",
            "regarding": {
                "apiVersion": body["apiVersion"],
                "kind": body["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
        }
