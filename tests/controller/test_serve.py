"""Probes, metrics and logs: what others know of the operator."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvpp_operator.cluster.cache import Cache
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.controller.logs import JsonFormatter
from kvpp_operator.controller.metrics import Metrics
from kvpp_operator.controller.serve import Server
from kvpp_operator.controller.streams import Stream
from kvpp_operator.manifest import PODS

if TYPE_CHECKING:
    import aiohttp


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", ":0"])
async def test_listens_where_it_is_told(session: aiohttp.ClientSession, listen: str) -> None:
    async with Server(listen, Metrics(Cache()).registry, lambda: ()) as server:
        host, port = server.address
        where = f"[{host}]" if ":" in host else host
        async with session.get(f"http://{where}:{port}/healthz") as answer:
            assert (answer.status, await answer.json()) == (200, {"alive": True})


async def test_ready_means_no_problems(session: aiohttp.ClientSession) -> None:
    problems = ["pods: has not started"]
    async with Server("127.0.0.1:0", Metrics(Cache()).registry, lambda: tuple(problems)) as server:
        url = "http://{}:{}/readyz".format(*server.address)
        async with session.get(url) as answer:
            assert (answer.status, await answer.json()) == (503, {"ready": False, "problems": problems})
        problems.clear()
        async with session.get(url) as answer:
            assert (answer.status, await answer.json()) == (200, {"ready": True, "problems": []})


async def test_metrics_are_what_prometheus_reads(session: aiohttp.ClientSession) -> None:
    metrics = Metrics(Cache())
    metrics.state.streams = (Stream(PODS, problem=""),)
    metrics.requested("APPLY", "ConfigMap", 201, 0.01)
    metrics.reconciled(0.002, None)
    metrics.reconciled(0.2, ClusterError(503, "", "later"))
    metrics.reconciled(0.2, RuntimeError("ours"))
    async with (
        Server("127.0.0.1:0", metrics.registry, lambda: ()) as server,
        session.get("http://{}:{}/metrics".format(*server.address)) as answer,
    ):
        families = tuple(text_string_to_metric_families(await answer.text()))
    found = [sample for family in families for sample in family.samples]
    samples = {(sample.name, *sorted(sample.labels.values())): sample.value for sample in found}
    assert samples["kvpp_api_requests_total", "201", "APPLY", "ConfigMap"] == 1.0
    for result in ("ok", "cluster_error", "internal_error"):
        assert samples["kvpp_reconcile_seconds_count", result] == 1.0
    assert samples["kvpp_watch_up", "", "Pod"] == 1.0
    assert samples["process_resident_memory_bytes",] > 0


def test_a_log_line_is_json_with_what_the_message_brings_along() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("kvpp_operator.test")
    logger.handlers = [handler]
    logger.propagate = False
    logger.warning("not %s", "reconciled", extra={"deployment": "team-a/模型", "seconds": 0.5})
    logger.error("an error of ours", exc_info=ValueError("on purpose"))
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "warning",
        "logger": "kvpp_operator.test",
        "message": "not reconciled",
        "deployment": "team-a/模型",
        "seconds": 0.5,
    }
    assert second["error"].endswith("ValueError: on purpose")
