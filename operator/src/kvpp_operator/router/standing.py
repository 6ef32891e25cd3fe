"""Whether the router may take requests, and if not, why: one reason for /readyz, metrics and the operator's status."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kvpp_operator.router import members
from kvpp_operator.router.members import ROLES
from kvpp_operator.router.steps import Held, Members, is_in_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvpp_operator.router.canary import Verdict


class Reason(StrEnum):
    SERVING = "Serving"
    STARTING = "Starting"
    NO_REVISION = "NoRevision"
    NO_MEMBERS = "NoMembers"
    PROXY_DOWN = "ProxyDown"
    PROXY_OUT_OF_STEP = "ProxyOutOfStep"
    SWITCHING = "SwitchingRevision"
    CANARY_RUNS = "CanaryRuns"
    CANARY_FAILED = "CanaryFailed"
    STOPPING = "Stopping"


@dataclass(frozen=True)
class Standing:
    reason: Reason
    message: str = ""

    @property
    def is_ready(self) -> bool:
        return self.reason is Reason.SERVING


STARTING = Standing(Reason.STARTING, "the cluster has not been read yet")
STOPPING = Standing(Reason.STOPPING, "the router is stopping")
PROXY_DOWN = Standing(Reason.PROXY_DOWN, "the P/D proxy does not answer")
SWITCHING = Standing(Reason.SWITCHING, "waiting for running requests before the next revision takes over")


SERVING = Standing(Reason.SERVING)


def standing(revision: str, wanted: Members, held: Held | None, verdict: Verdict | None) -> Standing:
    """`held` None: the proxy does not answer; `verdict` None: the canary has not come back yet."""
    return next(obstacles(revision, wanted, held, verdict), SERVING)


def obstacles(revision: str, wanted: Members, held: Held | None, verdict: Verdict | None) -> Iterator[Standing]:
    """Yield what keeps the router from serving, the first cause first."""
    if not revision:
        yield Standing(Reason.NO_REVISION, "no revision has been chosen to serve")
    if lack := members.missing(wanted):
        yield Standing(Reason.NO_MEMBERS, f"{lack} of revision {revision}")
    if held is None:
        yield PROXY_DOWN
    elif not is_in_step(wanted, held) or members.missing(held.members):
        listed = ", ".join(member.address for member in sorted(held.members)) or "nobody"
        yield Standing(Reason.PROXY_OUT_OF_STEP, f"the P/D proxy still holds {listed}")
    if verdict is None:
        yield Standing(Reason.CANARY_RUNS, "the first hand-over is being tried")
    elif not verdict.passed:
        yield Standing(Reason.CANARY_FAILED, verdict.message)


@dataclass(frozen=True)
class Report:
    """What others read of a router pod."""

    standing: Standing
    revision: str
    members: Members
    handover: str
    """`seen`, `not seen` or `unknown`."""

    def to_json(self) -> dict[str, Any]:
        return {
            "ready": self.standing.is_ready,
            "reason": self.standing.reason.value,
            "message": self.standing.message,
            "revision": self.revision,
            "members": {role: sorted(m.address for m in self.members if m.role == role) for role in ROLES},
            "handover": self.handover,
        }

    def text(self) -> str:
        return json.dumps(self.to_json(), separators=(",", ":"))
