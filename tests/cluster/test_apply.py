"""Apply and prune on a real API server: no write too many, nothing of others touched, no failure hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvpp_operator import names
from kvpp_operator.cluster.apply import apply, apply_status, prune
from kvpp_operator.cluster.cache import Cache
from kvpp_operator.cluster.client import Cluster, Patch
from kvpp_operator.cluster.outcome import Applied, Failure
from kvpp_operator.cluster.transport import NO_SUCH_API
from kvpp_operator.manifest import Key, Manifest, Owner, key_of, stamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kvpp_operator.cluster.access import Access

pytestmark = pytest.mark.cluster


class Counted:
    """A cluster whose writes are counted by its own observer hook."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def __call__(self, verb: str, kind: str, status: int, seconds: float) -> None:
        if verb not in {"GET", "LIST", "DISCOVER"}:
            self.writes.append(f"{verb} {kind}")


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
async def api(access: Access, counted: Counted, cluster: Cluster) -> AsyncIterator[Cluster]:
    async with Cluster(access, observe=counted) as client:
        yield client


@pytest.fixture
async def owner(cluster: Cluster, deployment: Callable[..., Manifest]) -> Owner:
    return Owner.of(await cluster.apply(deployment()))


def config_map(owner: Owner, name: str = "settings", **data: str) -> Manifest:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": owner.key.namespace},
        "data": data,
    }
    return stamp(manifest, labels={names.DEPLOYMENT: owner.key.name}, owner=owner)


def workload(owner: Owner, name: str = "engine", **container: Any) -> Manifest:
    labels = {"app": name}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": owner.key.namespace},
        "spec": {
            "replicas": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "vllm", "image": "x", "args": ["serve"], **container}],
                    "volumes": [{"name": "shm", "emptyDir": {}}],
                },
            },
        },
    }
    return stamp(manifest, labels={names.DEPLOYMENT: owner.key.name}, owner=owner)


async def test_first_round_writes_each_object_once_workloads_last(api: Cluster, owner: Owner, counted: Counted) -> None:
    wished = [workload(owner), config_map(owner)]
    applied = await apply(api, Cache(), owner, wished)
    assert applied == Applied(applied=(key_of(wished[1]), key_of(wished[0])))
    assert counted.writes == ["APPLY ConfigMap", "APPLY Deployment"]


async def test_second_round_writes_nothing(api: Cluster, owner: Owner, counted: Counted) -> None:
    wished, cache = [workload(owner), config_map(owner)], Cache()
    await apply(api, cache, owner, wished)
    counted.writes.clear()
    assert await apply(api, cache, owner, wished) == Applied(unchanged=2)
    assert counted.writes == []


async def test_after_a_restart_with_an_empty_cache_nothing_is_written(
    api: Cluster, owner: Owner, counted: Counted
) -> None:
    wished = [workload(owner), config_map(owner)]
    await apply(api, Cache(), owner, wished)
    counted.writes.clear()
    assert await apply(api, Cache(), owner, wished) == Applied(unchanged=2)
    assert counted.writes == []


async def test_a_changed_wish_is_applied_and_old_fields_go(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    cache = Cache()
    await apply(api, cache, owner, [config_map(owner, a="1", b="2")])
    wish = config_map(owner, a="1")
    assert await apply(api, cache, owner, [wish]) == Applied(applied=(key_of(wish),))
    live = await cluster.get(key_of(wish))
    assert live is not None
    assert live["data"] == {"a": "1"}


def edited(**container: Any) -> Manifest:
    return {"spec": {"template": {"spec": {"containers": [{"name": "vllm", "image": "x", **container}]}}}}


ENV, PROBE = [{"name": "A", "value": "1"}], {"httpGet": {"path": "/health", "port": 8000}}
FIELD_REF = {"fieldRef": {"fieldPath": "metadata.name"}}
HAND_EDITS: dict[str, Manifest] = {
    "value": edited(env=[{"name": "A", "valueFrom": FIELD_REF}]),
    "probe": edited(readinessProbe={"exec": {"command": ["true"]}}),
    "volume": {"spec": {"template": {"spec": {"volumes": [{"name": "shm", "hostPath": {"path": "/"}}]}}}},
    "argument": edited(args=["other"]),
    "image": edited(image="other"),
    "container": {"spec": {"template": {"spec": {"containers": [{"name": "other", "image": "x"}]}}}},
    "replicas": {"spec": {"replicas": 3}},
    "strategy": {"spec": {"strategy": {"type": "RollingUpdate"}}},
    "label": {"metadata": {"labels": {names.DEPLOYMENT: None}}},
    "wish": {"metadata": {"annotations": None}},
}


@pytest.mark.parametrize("edit", HAND_EDITS)
async def test_a_hand_edit_is_put_back(api: Cluster, owner: Owner, cluster: Cluster, edit: str) -> None:
    cache, wish = Cache(), workload(owner, env=ENV, readinessProbe=PROBE)
    await apply(api, cache, owner, [wish])
    cache.put(await cluster.patch(key_of(wish), HAND_EDITS[edit], form=Patch.MERGE))
    assert await apply(api, cache, owner, [wish]) == Applied(applied=(key_of(wish),))
    assert await apply(api, cache, owner, [wish]) == Applied(unchanged=1)
    live = await cluster.get(key_of(wish))
    assert live is not None
    ours = {entry["manager"] for entry in live["metadata"]["managedFields"] if "kvpp" in entry["manager"]}
    assert ours == {names.FIELD_MANAGER}


async def test_a_foreign_object_is_left_alone_and_named(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    wish = config_map(owner, a="ours")
    foreign = {**wish, "metadata": {"name": "settings", "namespace": owner.key.namespace}, "data": {"a": "theirs"}}
    before = await cluster.create(foreign)
    other = config_map(owner, "other")
    applied = await apply(api, Cache(), owner, [wish, other])
    assert applied == Applied(applied=(key_of(other),), foreign=(key_of(wish),))
    assert await cluster.get(key_of(wish)) == before


async def test_a_foreign_object_that_carries_our_labels_is_foreign(
    api: Cluster, owner: Owner, cluster: Cluster
) -> None:
    wish, cache = config_map(owner, a="ours"), Cache()
    meta = {name: value for name, value in wish["metadata"].items() if name != "ownerReferences"}
    created = await cluster.create({**wish, "metadata": meta})
    assert isinstance(created, dict)
    cache.put(created)
    assert (await apply(api, cache, owner, [wish])).foreign == (key_of(wish),)


async def test_an_object_of_a_predecessor_is_awaited(
    api: Cluster, owner: Owner, cluster: Cluster, deployment: Callable[..., Manifest]
) -> None:
    """The garbage collector has not come yet: the children of the deleted deployment are nobody's to change."""
    predecessor = Owner(owner.key, "00000000-0000-0000-0000-000000000000")
    wish, cache = config_map(owner, a="1"), Cache()
    old = {**config_map(predecessor, a="0"), "apiVersion": "v1"}
    created = await cluster.create(old)
    assert isinstance(created, dict)
    cache.put(created)
    applied = await apply(api, cache, owner, [wish])
    assert (applied.waiting, applied.foreign, applied.failed) == ((key_of(wish),), (), ())


async def test_a_name_taken_behind_our_back_is_not_taken_over(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    """The cache still shows our object, but somebody deleted it and made one of their own."""
    wish, cache = config_map(owner, a="1"), Cache()
    await apply(api, cache, owner, [wish])
    ours = cache.get(key_of(wish))
    assert ours is not None
    await cluster.delete(key_of(wish), uid=ours["metadata"]["uid"])
    theirs = await cluster.create({**wish, "metadata": {"name": "settings", "namespace": owner.key.namespace}})
    changed = config_map(owner, a="2")
    assert await apply(api, cache, owner, [changed]) == Applied(waiting=(key_of(wish),))
    assert await cluster.get(key_of(wish)) == theirs


async def test_prunes_what_is_no_longer_wished(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    cache, keep, gone = Cache(), config_map(owner, "keep"), config_map(owner, "gone")
    await apply(api, cache, owner, [keep, gone, workload(owner, "gone")])
    applied = await apply(api, cache, owner, [keep])
    workload_key = Key("apps/v1", "Deployment", owner.key.namespace, "gone")
    assert applied == Applied(unchanged=1, pruned=(workload_key, key_of(gone)))
    assert await cluster.get(key_of(gone)) is None
    assert await apply(api, cache, owner, [keep]) == Applied(unchanged=1)


async def test_prune_spares_other_owners_objects(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    cache = Cache()
    stranger = config_map(Owner(owner.key, "00000000-0000-0000-0000-000000000000"), "stranger")
    created = await cluster.create(stranger)
    assert isinstance(created, dict)
    cache.put(created)
    assert await prune(api, cache, owner, keep=()) == Applied()


async def test_prunes_what_changed_since_it_was_seen(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    cache, gone = Cache(), config_map(owner, "gone")
    await apply(api, cache, owner, [gone])
    await cluster.patch(key_of(gone), {"data": {"x": "y"}}, form=Patch.MERGE)
    assert await prune(api, cache, owner, keep=()) == Applied(pruned=(key_of(gone),))
    assert await cluster.get(key_of(gone)) is None


async def test_spares_what_somebody_took_over_since(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    """The workload changed hands, so it stays, and so does the ConfigMap that its pods may mount."""
    cache, workloads, maps = Cache(), workload(owner, "gone"), config_map(owner, "gone")
    await apply(api, cache, owner, [workloads, maps])
    await cluster.patch(key_of(workloads), {"metadata": {"ownerReferences": None}}, form=Patch.MERGE)
    assert await prune(api, cache, owner, keep=()) == Applied(waiting=(key_of(workloads),))
    assert await cluster.get(key_of(workloads)) is not None
    assert await cluster.get(key_of(maps)) is not None


async def test_one_failure_hides_no_other_and_keeps_the_old(api: Cluster, owner: Owner, cluster: Cluster) -> None:
    cache, old, fine = Cache(), config_map(owner, "old"), config_map(owner, "fine")
    await apply(api, cache, owner, [old])
    bad_map, bad_workload = config_map(owner, "bad", **{"no/key": "x"}), workload(owner, "bad", image="")
    bad_workload["spec"]["replicas"] = -1
    applied = await apply(api, cache, owner, [fine, bad_map, bad_workload])
    assert applied.applied == (key_of(fine),)
    assert [failure.key for failure in applied.failed] == [key_of(bad_map), key_of(bad_workload)]
    assert 'data[no/key]: Invalid value: "no/key"' in applied.failed[0].message
    assert not applied.failed[0].transient
    assert applied.pruned == ()
    assert await cluster.get(key_of(old)) is not None


async def test_a_quota_speaks_in_the_servers_words(
    api: Cluster, owner: Owner, cluster: Cluster, eventually: Callable[..., Awaitable[Any]]
) -> None:
    spec = {"hard": {"count/deployments.apps": "0"}}
    meta = {"name": "none", "namespace": owner.key.namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec}
    await cluster.apply(quota)

    async def in_force() -> bool:  # admission waits for the quota's status too
        live = await cluster.get(key_of(quota))
        return live is not None and "hard" in live.get("status", {})

    await eventually(in_force)
    wish = workload(owner)
    (failure,) = (await apply(api, Cache(), owner, [wish])).failed
    assert failure == Failure(
        key_of(wish),
        'deployments.apps "engine" is forbidden: exceeded quota: none, requested: count/deployments.apps=1, '
        "used: count/deployments.apps=0, limited: count/deployments.apps=0",
        "Forbidden",
        transient=False,
    )


async def test_an_absent_api_is_the_objects_failure(api: Cluster, owner: Owner) -> None:
    manifest = {
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelRoute",
        "metadata": {"name": "x", "namespace": owner.key.namespace},
    }
    applied = await apply(api, Cache(), owner, [stamp(manifest, labels={}, owner=owner), config_map(owner)])
    path = f"/apis/networking.serving.volcano.sh/v1alpha1/namespaces/{owner.key.namespace}/modelroutes/x"
    message = f"the cluster does not serve this API: {path}"
    assert [(failure.reason, failure.message) for failure in applied.failed] == [(NO_SUCH_API, message)]
    assert applied.applied == (key_of(config_map(owner)),)


async def test_status_is_written_only_if_it_differs(
    api: Cluster, owner: Owner, counted: Counted, deployment: Callable[..., Manifest]
) -> None:
    cache = Cache()
    body = await api.get(key_of(deployment()))
    assert body is not None
    cache.put(body)
    counted.writes.clear()
    assert await apply_status(api, cache, body, {"observedGeneration": 1})
    current = cache.deployment(owner.key)
    assert current is not None
    assert await apply_status(api, cache, current, {"observedGeneration": 1})
    assert counted.writes == ["APPLY_STATUS KVPPDeployment"]
    assert not await apply_status(api, cache, body, {"observedGeneration": 2})
