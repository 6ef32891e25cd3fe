"""What the router says of itself to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kvpp_operator.router.members import ROLES
from kvpp_operator.router.standing import Reason

if TYPE_CHECKING:
    from kvpp_operator.router.standing import Standing
    from kvpp_operator.router.steps import Held, Members

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
HANDOVER = {"seen": 1, "not seen": 0, "unknown": -1}


class Metrics:
    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kvpp_router_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"kvpp_router_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"kvpp_router_{name}_seconds", text, ("path",), buckets=SECONDS, registry=registry)

        self.requests = counter("requests", "Answered requests", "path", "code")
        self.seconds = seconds("request", "Until the last byte")
        self.first_byte = seconds("first_byte", "Until the first byte")
        self.active = gauge("active_requests", "Requests that are being passed through")
        self.held = gauge("held_requests", "Requests that wait for the router to be ready")
        self.refused = counter("refused", "Requests turned away", "why")
        self.proxy_restarts = counter("proxy_restarts", "How often the proxy went away")
        self.switches = counter("revision_switches", "How often another revision took over")
        self._members = gauge("members", "Engines: wanted, behind the proxy, leaving it", "role", "state")
        self._ready = gauge("ready", "1: takes requests")
        self._standing = gauge("standing", "1 for the reason that holds", "reason")
        self._handover = gauge("handover_seen", "1: KV moves from prefill to decode, 0: it does not, -1: not known")
        self._handover.set(HANDOVER["unknown"])

    def show(self, standing: Standing, wanted: Members, held: Held, handover: str) -> None:
        self._ready.set(standing.is_ready)
        for reason in Reason:
            self._standing.labels(reason.value).set(reason is standing.reason)
        for role in ROLES:
            for state, group in (("wanted", wanted), ("serving", held.usable), ("leaving", held.leaving)):
                self._members.labels(role, state).set(sum(member.role == role for member in group))
        self._handover.set(HANDOVER[handover])

    def text(self) -> bytes:
        return generate_latest(self.registry)
