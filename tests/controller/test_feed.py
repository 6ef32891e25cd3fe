"""What reaches the queue and the cache from a real API server, APIs that come and go included."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from kvpp_operator import names
from kvpp_operator.cluster.cache import Cache
from kvpp_operator.controller import feed as feed_module
from kvpp_operator.controller.run import RunSettings, operate
from kvpp_operator.controller.streams import Stream, Streams
from kvpp_operator.controller.sweep import compare
from kvpp_operator.controller.watch import Watch, WatchError
from kvpp_operator.manifest import DEPLOYMENTS, KIND_OF, DeploymentKey, Key, Manifest, Owner, key_of, stamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import aiohttp
    from aiohttp.client_middlewares import ClientHandlerType
    from tests.controller.conftest import Stage

    from kvpp_operator.cluster.access import Access
    from kvpp_operator.cluster.client import Cluster

    Eventually = Callable[..., Awaitable[Any]]

pytestmark = pytest.mark.cluster
CONFIG_MAPS = KIND_OF["v1", "ConfigMap"]
POD_GROUPS = KIND_OF["scheduling.volcano.sh/v1beta1", "PodGroup"]


@dataclasses.dataclass
class Looks:
    """A reconcile that only notes what it is asked to look at."""

    keys: list[DeploymentKey] = dataclasses.field(default_factory=list)
    cache: Cache = dataclasses.field(default_factory=Cache)
    ended: asyncio.Task[None] | None = None

    async def __call__(self, key: DeploymentKey, cache: Cache, cluster: Cluster) -> float | None:
        self.keys.append(key)
        self.cache = cache
        return None

    async def at(self, key: DeploymentKey) -> bool:
        """Tell whether it was looked at since it was last asked, and forget."""
        found = key in self.keys
        self.keys.clear()
        return found


@pytest.fixture
def looking(stage: Stage, local_cluster: Any) -> Callable[..., contextlib.AbstractAsyncContextManager[Looks]]:
    @contextlib.asynccontextmanager
    async def running(**options: Any) -> AsyncIterator[Looks]:
        stop, looks = asyncio.Event(), Looks()
        settings = RunSettings(
            kubeconfig=str(local_cluster.kubeconfig), namespaces=(stage.namespace,), listen="127.0.0.1:0"
        )
        looks.ended = asyncio.create_task(operate(looks, dataclasses.replace(settings, **options), stop))
        yield looks
        stop.set()
        await asyncio.wait_for(looks.ended, 20.0)

    return running


def child(owner: Owner, kind: str = "ConfigMap", api_version: str = "v1", **content: Any) -> Manifest:
    meta = {"name": "child", "namespace": owner.key.namespace}
    return stamp({"apiVersion": api_version, "kind": kind, "metadata": meta, **content}, labels={}, owner=owner)


async def test_news_of_a_child_and_of_a_pod_ask_for_a_look(
    stage: Stage, looking: Callable[..., Any], eventually: Eventually
) -> None:
    key = DeploymentKey(stage.namespace, "glm")
    async with looking() as looks:
        owner = Owner.of(await stage.apply())
        await eventually(lambda: looks.at(key))
        await stage.cluster.apply(child(owner, data={"a": "1"}))
        await eventually(lambda: looks.at(key))
        meta = {"name": "pod", "namespace": stage.namespace, "labels": {names.DEPLOYMENT: "glm"}}
        spec = {"containers": [{"name": "vllm", "image": "x"}], "serviceAccountName": "default"}

        async def admitted() -> bool:  # once kube-controller-manager has made the service account
            with contextlib.suppress(Exception):
                await stage.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
                return True
            return False

        await eventually(admitted)
        await eventually(lambda: looks.at(key))
        assert [pod["spec"]["containers"] for pod in looks.cache.pods(key)] == [[{"name": "vllm"}]]
        live = await stage.live(key_of(child(owner)))
        await stage.cluster.delete(key_of(live), uid=live["metadata"]["uid"])

        async def is_forgotten() -> bool:
            return bool(await looks.at(key)) and looks.cache.owned(key) == ()

        await eventually(is_forgotten)


async def test_a_namespaced_operator_sees_only_its_own(
    stage: Stage, looking: Callable[..., Any], eventually: Eventually
) -> None:
    elsewhere = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{stage.namespace}-b"}}
    created = await stage.cluster.apply(elsewhere)
    other = dataclasses.replace(stage, namespace=f"{stage.namespace}-b")
    async with looking() as looks:
        await other.apply("theirs")
        await stage.apply("ours")
        await eventually(lambda: looks.at(DeploymentKey(stage.namespace, "ours")))
        assert looks.cache.deployments() == (DeploymentKey(stage.namespace, "ours"),)
    async with looking(namespaces=()) as looks:
        await eventually(lambda: looks.at(DeploymentKey(other.namespace, "theirs")))
        assert {DeploymentKey(stage.namespace, "ours"), DeploymentKey(other.namespace, "theirs")} <= set(
            looks.cache.deployments()
        )
    await stage.cluster.delete(key_of(created), uid=created["metadata"]["uid"])


def pod_group_definition() -> Manifest:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh",
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups"},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def test_an_optional_api_comes_and_goes(
    stage: Stage, looking: Callable[..., Any], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "DISCOVERY_SECONDS", 0.3)
    key = DeploymentKey(stage.namespace, "glm")
    async with looking() as looks:
        owner = Owner.of(await stage.apply())
        await eventually(lambda: looks.at(key))
        assert POD_GROUPS not in looks.cache.served
        definition = await stage.cluster.apply(pod_group_definition())
        try:

            async def is_served() -> bool:
                return POD_GROUPS in looks.cache.served

            await eventually(is_served)
            await eventually(lambda: looks.at(key))  # it may have waited for just this
            group = child(owner, "PodGroup", POD_GROUPS.api_version, spec={"minMember": 2})
            await stage.cluster.apply(group)
            await eventually(lambda: looks.at(key))
            assert [manifest["kind"] for manifest in looks.cache.owned(key)] == ["PodGroup"]
        finally:
            await stage.cluster.delete(key_of(definition), uid=definition["metadata"]["uid"])

        async def is_gone() -> bool:
            return POD_GROUPS not in looks.cache.served and looks.cache.owned(key) == ()

        await eventually(is_gone)
        await stage.cluster.apply(child(owner, data={"a": "1"}))
        await eventually(lambda: looks.at(key))
        assert not looks.ended.done()


async def test_a_deletion_that_no_watch_told_is_found_by_comparing(
    stage: Stage, cluster: Cluster, eventually: Eventually
) -> None:
    cache, stream = Cache(), Stream(CONFIG_MAPS, stage.namespace)
    owner = Owner.of(await stage.apply())
    kept = await cluster.apply(child(owner))
    other = child(owner)
    gone = await cluster.apply({**other, "metadata": {**other["metadata"], "name": "gone"}})
    for manifest in (kept, gone):
        cache.put(manifest)
    await cluster.delete(key_of(gone), uid=gone["metadata"]["uid"])
    difference = await compare(cluster, cache, stream)
    assert [key for key, _ in difference.gone] == [key_of(gone)]
    assert difference.behind == ()
    newer = await cluster.apply(child(owner, data={"a": "2"}))
    assert (await compare(cluster, cache, stream)).behind == (key_of(newer),)
    assert (await compare(cluster, Cache(), stream)).behind == (key_of(newer),)
    assert (await compare(cluster, cache, Stream(CONFIG_MAPS, "elsewhere"))).gone == ()


async def test_a_resync_catches_up_with_what_a_deaf_watch_missed(
    stage: Stage, looking: Callable[..., Any], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "BEHIND_SECONDS", 0.1)
    key = DeploymentKey(stage.namespace, "glm")
    async with looking(resync_seconds=0.5) as looks:
        owner = Owner.of(await stage.apply())
        await eventually(lambda: looks.at(key))
        applied = await stage.cluster.apply(child(owner, data={"a": "1"}))

        async def is_known() -> bool:
            return looks.cache.entry(key_of(applied)) is not None

        await eventually(is_known)
        looks.cache._forget(key_of(applied))  # as if never told
        await eventually(is_known)
        looks.keys.clear()
        await eventually(lambda: looks.at(key))  # and all are looked at, for no reason but time


class Tripping(Streams):
    """Streams that break the watcher from within, as an error in a watch would."""

    async def follow(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        if "watch" in request.url.query:
            raise ValueError("on purpose")
        return await handler(request)


async def test_what_is_fatal_to_the_watcher_is_told(access: Access, stage: Stage) -> None:
    watch = Watch(access, Tripping([DEPLOYMENTS], (stage.namespace,)), lambda event, thing: None)
    watch.start()
    with pytest.raises(WatchError, match="on purpose"):
        await asyncio.wait_for(watch.wait(), 20.0)
    await watch.stop()


async def test_what_is_fatal_to_the_watcher_ends_the_operator(
    looking: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "Streams", Tripping)
    with pytest.raises(WatchError, match="on purpose"):
        async with looking() as looks:
            await asyncio.wait({looks.ended}, timeout=20.0)


async def test_a_watcher_that_is_stopped_ends_without_complaint(access: Access, stage: Stage) -> None:
    seen: list[tuple[str | None, Key]] = []
    first = asyncio.Event()

    def take_in(event: str | None, thing: Manifest) -> None:
        seen.append((event, key_of(thing)))
        first.set()

    streams = Streams([DEPLOYMENTS], (stage.namespace,))
    await stage.apply()
    watch = Watch(access, streams, take_in)
    watch.start()
    await asyncio.wait_for(first.wait(), 20.0)
    await watch.stop()
    await watch.wait()
    assert seen == [(None, stage.user)]


async def test_one_odd_object_does_not_hold_up_the_others(
    access: Access, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        await stage.apply(name)
    seen: list[str] = []
    complete = asyncio.Event()

    def take_in(_: str | None, thing: Manifest) -> None:
        seen.append(thing["metadata"]["name"])
        if len(seen) == 3:
            complete.set()
        raise KeyError("on purpose")

    watch = Watch(access, Streams([DEPLOYMENTS], (stage.namespace,)), take_in)
    watch.start()
    await asyncio.wait_for(complete.wait(), 20.0)
    await watch.stop()
    assert sorted(seen) == ["a", "b", "c"]
    assert [record.message for record in caplog.records] == ["event not taken in"] * 3


async def test_a_leader_that_renews_its_lease_asks_for_no_look(
    stage: Stage, looking: Callable[..., Any], eventually: Eventually
) -> None:
    """MetaService pods say every few seconds that they live; that changes nothing that we wish."""
    key = DeploymentKey(stage.namespace, "glm")
    async with looking() as looks:
        owner = Owner.of(await stage.apply())
        wish = child(owner, "Lease", "coordination.k8s.io/v1", spec={"leaseDurationSeconds": 10})
        await stage.cluster.apply(wish)
        await eventually(lambda: looks.at(key))
        for second in range(3):
            renewed = {**wish["spec"], "holderIdentity": "pod-0", "renewTime": f"2026-01-01T00:00:0{second}.000000Z"}
            live = await stage.cluster.apply({**wish, "spec": renewed})
            seen = looks.cache.entry

            async def is_seen(version: str = live["metadata"]["resourceVersion"], seen: Any = seen) -> bool:
                entry = seen(key_of(wish))
                return entry is not None and entry.resource_version == version

            await eventually(is_seen)
        assert not await looks.at(key)
        await stage.cluster.delete(key_of(wish), uid=live["metadata"]["uid"])
        await eventually(lambda: looks.at(key))
