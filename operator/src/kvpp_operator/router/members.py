"""Who should be behind the proxy: heads of one revision, ready by Kubernetes' word, and healthy by our own for a while.

Two witnesses, because each sees what the other misses: the kubelet's word takes 40 s when a node is lost, and a process
that answers may be about to stop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Role = Literal["prefill", "decode"]
ROLES: tuple[Role, ...] = ("prefill", "decode")

Outcome = Literal["ok", "refused", "silent"]
"""Of one look at `/health`. `refused`: nobody listens, or the engine calls itself dead; `silent`: no answer in time."""


@dataclass(frozen=True, order=True)
class Member:
    """An engine's API head as the proxy knows it."""

    role: Role
    address: str
    """`10.1.2.3:8000`."""


@dataclass(frozen=True)
class Endpoint:
    """A head as the cluster knows it."""

    member: Member
    revision: str
    serving: bool
    """Ready and not about to stop."""
    pod: str = ""
    """Tells a successor at the same address apart."""


@dataclass(frozen=True)
class Policy:
    look_seconds: float = 1.0
    """Between two looks at an engine."""
    hold_seconds: float = 2.0
    """Health must have held that long before an engine gets its first request."""
    refusals: int = 2
    """So many refusals in a row are the end."""
    silent_seconds: float = 20.0
    """A busy engine answers late: `/health` needs its API loop (launch facts 10.1)."""


@dataclass(frozen=True)
class Health:
    """What the looks at one engine add up to; times are `time.monotonic`."""

    healthy_since: float | None = None
    silent_since: float | None = None
    refusals: int = 0

    def after(self, outcome: Outcome, now: float) -> Health:
        match outcome:
            case "ok":
                return Health(healthy_since=now if self.healthy_since is None else self.healthy_since)
            case "refused":
                return Health(refusals=self.refusals + 1)
            case "silent":
                return replace(self, silent_since=now if self.silent_since is None else self.silent_since)

    def has_held(self, policy: Policy, now: float) -> bool:
        return (
            self.silent_since is None
            and self.healthy_since is not None
            and now - self.healthy_since >= policy.hold_seconds
        )

    def is_lost(self, policy: Policy, now: float) -> bool:
        silent = self.silent_since is not None and now - self.silent_since >= policy.silent_seconds
        return silent or self.refusals >= policy.refusals


UNSEEN = Health()


def admitted(
    endpoints: Iterable[Endpoint],
    health: Mapping[Endpoint, Health],
    already: Collection[Endpoint],
    policy: Policy,
    now: float,
) -> frozenset[Endpoint]:
    """Endpoints of every revision that may get requests. It is harder to come in than to stay in."""
    return frozenset(
        endpoint
        for endpoint in endpoints
        if endpoint.serving
        and (
            not health.get(endpoint, UNSEEN).is_lost(policy, now)
            if endpoint in already
            else health.get(endpoint, UNSEEN).has_held(policy, now)
        )
    )


def has_both_roles(members: Iterable[Member]) -> bool:
    return {member.role for member in members} == set(ROLES)


def of_revision(endpoints: Iterable[Endpoint], revision: str) -> frozenset[Member]:
    return frozenset(endpoint.member for endpoint in endpoints if endpoint.revision == revision)


def serving_revision(wish: str, current: str, endpoints: Collection[Endpoint]) -> str:
    """Choose the wished revision once it can serve, until then the present one. Never two: P and D are one revision."""
    return wish if not current or has_both_roles(of_revision(endpoints, wish)) else current


def missing(members: Collection[Member]) -> str:
    """Say what is missing for serving; "" when nothing is."""
    absent = [role for role in ROLES if not any(member.role == role for member in members)]
    return f"no healthy {' and no healthy '.join(absent)} engine" if absent else ""
