"""What Prometheus may know of us, in a registry of our own so that two operators fit in one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kvpp_operator.cluster.transport import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from kvpp_operator.cluster.cache import Cache
    from kvpp_operator.controller.queue import WorkQueue
    from kvpp_operator.controller.streams import Stream
    from kvpp_operator.manifest import DeploymentKey

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters that the operator's parts report to, and gauges read off its state when somebody asks."""

    def __init__(self, cache: Cache) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.reconciles = Histogram(
            "kvpp_reconcile_seconds",
            "Time of one reconcile of a KVPPDeployment, by result: ok, cluster_error, internal_error.",
            ["result"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.requests = Counter(
            "kvpp_api_requests_total",
            "Requests to the API server, watches apart; code 0 is no answer.",
            ["verb", "kind", "code"],
            registry=self.registry,
        )
        self.swept = Counter(
            "kvpp_cache_corrections_total",
            "Objects whose deletion or change no watch had told, found by comparing with a list.",
            ["difference"],
            registry=self.registry,
        )
        self.state = State(cache)
        self.registry.register(self.state)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def requested(self, verb: str, kind: str, status: int, seconds: float) -> None:  # noqa: ARG002 - observer's shape
        self.requests.labels(verb, kind, status).inc()

    def reconciled(self, seconds: float, error: Exception | None) -> None:
        result = "ok" if error is None else "cluster_error" if isinstance(error, ClusterError) else "internal_error"
        self.reconciles.labels(result).observe(seconds)


class State(Collector):
    """Gauges that are read when they are asked for."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.queue: WorkQueue[DeploymentKey] | None = None
        self.streams: tuple[Stream, ...] = ()

    def collect(self) -> Iterator[Metric]:
        deployments = GaugeMetricFamily(
            "kvpp_deployments", "KVPPDeployments by condition and its status.", labels=["condition", "status"]
        )
        for (condition, status), number in sorted(self._cache.conditions.items()):
            deployments.add_metric([condition, status], number)
        yield deployments
        yield GaugeMetricFamily("kvpp_cache_objects", "Objects known from watches.", value=len(self._cache))
        if self.queue is not None:
            yield GaugeMetricFamily("kvpp_queue_depth", "KVPPDeployments that wait.", value=len(self.queue))
            yield GaugeMetricFamily("kvpp_reconciles_running", "Reconciles under way.", value=self.queue.busy)
        watches = GaugeMetricFamily("kvpp_watch_up", "Whether a watch is open.", labels=["kind", "namespace"])
        for stream in self.streams:
            watches.add_metric([stream.kind.name, stream.namespace], 0.0 if stream.problem else 1.0)
        yield watches
