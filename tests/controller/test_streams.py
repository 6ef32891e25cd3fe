"""What the watcher's requests tell of its watches."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from kvpp_operator.controller.streams import RENEWAL_SECONDS, STALE_SECONDS, Stream, Streams, labels_of
from kvpp_operator.manifest import DEPLOYMENTS, KIND_OF, LEDGERS, PODS

CONFIG_MAPS = KIND_OF["v1", "ConfigMap"]
PATH = "/api/v1/namespaces/team-a/configmaps"


class Message:
    """As much of a request or an answer as is looked at."""

    def __init__(self, path: str = "", status: int = 200, reason: str = "OK") -> None:
        self.url = URL(f"https://x{path}")
        self.status = status
        self.reason = reason


class Bench:
    def __init__(self) -> None:
        self.now = 1000.0
        self.relisted: list[Stream] = []
        self.streams = Streams([CONFIG_MAPS], ("team-a",), on_relist=self.relisted.append, clock=lambda: self.now)

    async def request(self, query: str, status: int = 200, error: Exception | None = None) -> None:
        async def handler(_: Any) -> Any:
            if error is not None:
                raise error
            return Message(status=status, reason="Forbidden" if status == 403 else "OK")

        await self.streams.follow(Message(PATH + query), handler)  # type: ignore[arg-type]

    async def watched(self) -> None:
        await self.request("?limit=500")
        await self.request("?watch=true")


async def test_until_a_watch_is_open_there_is_a_problem() -> None:
    bench = Bench()
    assert bench.streams.problems() == ("configmaps in team-a: has not started",)
    await bench.request("?limit=500")
    assert bench.streams.problems() == ("configmaps in team-a: has not started",)
    await bench.request("?watch=true")
    assert bench.streams.problems() == ()


async def test_a_lost_connection_is_a_problem_until_it_is_back() -> None:
    bench = Bench()
    await bench.watched()
    with pytest.raises(OSError, match="refused"):
        await bench.request("?watch=true", error=OSError("refused"))
    assert bench.streams.problems() == ("configmaps in team-a: cannot reach the API server (OSError)",)
    await bench.request("?watch=true")
    assert bench.streams.problems() == ()


async def test_a_refusal_is_told_with_its_status() -> None:
    bench = Bench()
    await bench.request("?limit=500", status=403)
    assert bench.streams.problems() == ("configmaps in team-a: refused by the API server (403 Forbidden)",)


async def test_a_watch_that_is_never_renewed_is_a_problem() -> None:
    bench = Bench()
    await bench.watched()
    bench.now += RENEWAL_SECONDS + 1
    assert bench.streams.problems() == ()
    bench.now += STALE_SECONDS
    assert bench.streams.problems() == (f"configmaps in team-a: no sign of life for {bench.now - 1000:.0f} s",)


async def test_a_list_that_starts_over_is_told_once_its_watch_is_open() -> None:
    bench = Bench()
    await bench.watched()
    await bench.request("?watch=true")
    await bench.request("?limit=500&continue=more")
    assert bench.relisted == []
    await bench.request("?limit=500")
    assert bench.relisted == []
    await bench.request("?watch=true")
    assert [str(stream) for stream in bench.relisted] == ["configmaps in team-a"]


async def test_other_requests_pass() -> None:
    bench = Bench()

    async def handler(_: Any) -> Any:
        return Message(status=500)

    assert (await bench.streams.follow(Message("/version"), handler)).status == 500  # type: ignore[arg-type]
    assert bench.streams.problems() == ("configmaps in team-a: has not started",)


def test_one_stream_for_each_kind_and_namespace() -> None:
    streams = Streams([DEPLOYMENTS, PODS], ("a", "b"))
    assert sorted(map(str, streams)) == ["kvppdeployments in a", "kvppdeployments in b", "pods in a", "pods in b"]
    assert sorted(map(str, Streams([DEPLOYMENTS, PODS]))) == ["kvppdeployments", "pods"]
    assert list(map(str, Streams([LEDGERS], ("a", "b")))) == ["kvppportledgers"]


def test_the_server_filters() -> None:
    assert labels_of(DEPLOYMENTS) == ""
    assert labels_of(PODS) == "serving.kvpp.io/deployment"
    assert labels_of(CONFIG_MAPS) == "app.kubernetes.io/managed-by=kvpp-operator"
