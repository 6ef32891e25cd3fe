"""The status subresource: conditions, findings, roles, engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvpp_operator.report import reasons
from kvpp_operator.report.engines import EngineState
from kvpp_operator.report.pool import PoolState
from kvpp_operator.report.router import RouterState
from kvpp_operator.rules.base import Finding

WITHOUT_PORTS = ("PortsUnavailable", "MakingWay")
PORTS_NEED_PERSON = ("PortsUnavailable", "PortConflict")
FINDINGS_LIMIT, ENGINES_LIMIT, MESSAGE_LIMIT = 64, 128, 4096
NEEDS_PERSON = ("ForeignObject", "MissingApi", "Refused")
"""Outcomes that do not go away by themselves."""


@dataclass(frozen=True)
class Outcome:
    """What applying came to."""

    reason: str = "Applied"
    """Applied, NotApplied, ForeignObject, MissingApi, Refused or Retrying."""
    message: str = ""
    kept_old: bool = False
    """Nothing of a new revision was applied: what ran before, runs."""


@dataclass(frozen=True)
class Report:
    """Everything that status is made from."""

    generation: int
    findings: Sequence[Finding]
    wanted: Mapping[str, int]
    """Role → engines wanted."""
    engines: Sequence[EngineState] = ()
    router: RouterState | None = None
    """None where no router of ours stands in front."""
    pools: Sequence[PoolState] = ()
    """Those whose service is ours."""
    outcome: Outcome = Outcome()
    ports: Outcome = Outcome("PodNetwork")
    revision: str = ""
    update_available: str = ""
    suspended: bool = False
    model: str = ""
    rules_version: str = ""
    estimate: Mapping[str, Any] = field(default_factory=dict)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def accepted(self) -> bool:
        return not self.errors


def status(report: Report, previous: Mapping[str, Any], now: str) -> dict[str, Any]:
    """`now` is RFC 3339; a condition's transition time moves only when its status moves."""
    before = {condition["type"]: condition for condition in previous.get("conditions", []) if "type" in condition}
    found = {
        "observedGeneration": report.generation,
        "conditions": [condition(report, verdict, before, now) for verdict in verdicts(report)],
        "findings": shown_findings(report),
        "revision": report.revision,
        "updateAvailable": report.update_available,
        "model": report.model,
        "roles": {role: counts(report, role) for role in report.wanted},
        "engines": [engine.to_json() for engine in report.engines[:ENGINES_LIMIT]],
        "engineCount": len(report.engines),
        "capacity": {"estimate": dict(report.estimate)} if report.estimate else {},
        "router": report.router.to_json() if report.router else {},
        "rules": {"version": report.rules_version} if report.rules_version else {},
    }
    return {key: value for key, value in found.items() if value not in ("", {}, [], None)}


def condition(report: Report, verdict: tuple[str, str, str], before: Mapping[str, Any], now: str) -> dict[str, Any]:
    kind, reason, message = verdict
    known = reasons.BY_NAME[kind, reason]
    last = before.get(kind, {})
    return {
        "type": kind,
        "status": known.status,
        "reason": reason,
        "message": (message or known.meaning)[:MESSAGE_LIMIT],
        "observedGeneration": report.generation,
        "lastTransitionTime": last.get("lastTransitionTime", now) if last.get("status") == known.status else now,
    }


def verdicts(report: Report) -> Iterable[tuple[str, str, str]]:
    """(condition, reason, message) for every condition, in their fixed order."""
    yield reasons.ACCEPTED, *accepted(report)
    yield reasons.PORTS, *((report.ports.reason, report.ports.message) if report.accepted else ("NotPlanned", ""))
    yield reasons.APPLIED, *((report.outcome.reason, report.outcome.message) if report.accepted else ("NotApplied", ""))
    yield reasons.AVAILABLE, *available(report)
    if report.router is not None:
        yield reasons.HANDOVER, *handover(report.router)
    if report.pools:
        yield reasons.POOL, *pool(report.pools)
    yield reasons.READY, *ready(report)
    yield reasons.RECONCILING, *reconciling(report)
    stuck = not report.suspended and (needs_person(report))
    yield reasons.STALLED, *(("NeedsChange", first_trouble(report)) if stuck else ("Healthy", ""))


def accepted(report: Report) -> tuple[str, str]:
    if report.accepted:
        warnings = len(report.findings)
        return (
            "Accepted",
            "" if not warnings else f"Accepted with {warnings} warning{'s' * (warnings > 1)}; see findings.",
        )
    return "Invalid", " ".join(str(finding) for finding in report.errors)


def available(report: Report) -> tuple[str, str]:
    """Engines are ready, and requests get to them."""
    router = report.router
    if not has_engines(report):
        return "NoEngineReady", ""
    if router is None or router.ready or not router.wanted:
        return "Available", ""
    for said, reason in (("CanaryFailed", "CanaryFailed"), ("NoMembers", "RouterWithoutMembers")):
        if (found := router.said(said)) is not None:
            return reason, found.message
    return "RouterNotReady", router.obstacle


def handover(router: RouterState) -> tuple[str, str]:
    """Whether KV goes from prefill to decode, as router pods see it: the worst of them counts."""
    if (failed := router.said("CanaryFailed")) is not None:
        return "CanaryFailed", failed.message
    seen = {report.handover for report in router.reports}
    return next(
        (reason for word, reason in (("not seen", "HandoverNotSeen"), ("seen", "HandoverSeen")) if word in seen),
        "HandoverUnknown",
    ), ""


def pool(states: Sequence[PoolState]) -> tuple[str, str]:
    """Whether the services of pools answer: the worst of them counts."""
    down = [state for state in states if not state.ready and state.wanted]
    degraded = [state for state in states if state.ready < state.wanted]
    return ("PoolDown" if down else "PoolDegraded" if degraded else "PoolReady"), " ".join(map(str, down or degraded))


def has_engines(report: Report) -> bool:
    """One revision has a ready engine in every role that serves."""
    roles = {engine.role for engine in report.engines}
    ready_in = {(engine.revision, engine.role) for engine in report.engines if engine.ready}
    return bool(roles) and any(all((revision, role) in ready_in for role in roles) for revision, _ in ready_in)


def ready(report: Report) -> tuple[str, str]:
    if not report.accepted:
        return "SpecNotAccepted", ""
    if not report.suspended and (report.outcome.reason != "Applied" or report.ports.reason in WITHOUT_PORTS):
        return "ObjectsNotApplied", report.outcome.message or report.ports.message
    if not any(report.wanted.values()):
        return "NoEnginesWanted", ""
    waiting = [engine for engine in report.engines if not engine.ready]
    if not waiting and len(report.engines) >= sum(report.wanted.values()):
        held_up = router_trouble(report)
        return ("RouterNotReady", held_up) if held_up else ("Ready", "")
    first = f" First: {waiting[0].role} {waiting[0].index}: {waiting[0].reason}." if waiting else ""
    return "EnginesNotReady", f"{len(waiting)} of {len(report.engines)} engines are not ready.{first}"


def router_trouble(report: Report) -> str:
    """What keeps the router from passing requests to all engines that are there; "" when nothing does."""
    router = report.router
    if router is None or not all(report.wanted.values()):
        return ""  # without engines of both roles no router can serve, and nobody asks it to
    if router.ready < router.wanted or not router.is_current:
        return f"{router.ready} of {router.wanted} router pods are ready. {router.obstacle}".rstrip()
    for one in router.reports:
        if one.revision != report.revision:
            return f"The router still serves revision {one.revision or 'none'}. {one.message}".rstrip()
        if one.members < len(report.engines):
            return f"The router has {one.members} of {len(report.engines)} engines behind it."
    return ""


def reconciling(report: Report) -> tuple[str, str]:
    if report.suspended:
        return "Suspended", ""
    if needs_person(report) or ready(report)[0] in ("Ready", "NoEnginesWanted"):
        return "Settled", ""
    return "Progressing", ready(report)[1]


def needs_person(report: Report) -> bool:
    return not report.accepted or report.ports.reason in PORTS_NEED_PERSON or report.outcome.reason in NEEDS_PERSON


def first_trouble(report: Report) -> str:
    if not report.accepted:
        return str(report.errors[0])
    return report.ports.message if report.ports.reason in PORTS_NEED_PERSON else report.outcome.message


def counts(report: Report, role: str) -> dict[str, Any]:
    mine = [engine for engine in report.engines if engine.role == role]
    up = sum(engine.ready for engine in mine)
    updated = sum(engine.revision == report.revision for engine in mine)
    return {"wanted": report.wanted[role], "ready": up, "updated": updated, "summary": f"{up}/{report.wanted[role]}"}


def shown_findings(report: Report) -> list[dict[str, Any]]:
    return [short_finding(finding) for finding in report.findings[:FINDINGS_LIMIT]]


def short_finding(finding: Finding) -> dict[str, Any]:
    """Values may be of any size and shape; status shows the start as text."""
    shown = finding.to_json()
    value = shown.pop("value")
    text = value if isinstance(value, str) else "" if value is None else repr(value)
    return {key: str(item)[:2048] for key, item in shown.items()} | {"value": text[:256]}
