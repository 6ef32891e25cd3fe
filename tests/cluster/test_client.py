"""The client against a real API server: what it promises is what the server does, not what a fake would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvpp_operator import names
from kvpp_operator.cluster.client import Cluster, Conflict
from kvpp_operator.cluster.transport import ClusterError
from kvpp_operator.manifest import KIND_OF, Key, Kind, Manifest, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvpp_operator.cluster.access import Access

pytestmark = pytest.mark.cluster
CONFIG_MAPS = KIND_OF["v1", "ConfigMap"]


def config_map(namespace: str, name: str = "settings", **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


async def test_apply_then_get(cluster: Cluster, namespace: str) -> None:
    applied = await cluster.apply(config_map(namespace, a="1"))
    assert await cluster.get(key_of(applied)) == applied
    (manager,) = applied["metadata"]["managedFields"]
    assert (manager["manager"], manager["operation"]) == (names.FIELD_MANAGER, "Apply")


ODD = [
    "\U0001f680 模型",
    "\x7f\x80\x85\x9f",
    "\u2028\u2029",
    "\ufeff\ufffe\uffff",
    "\t\r\n\x00\x1b",
    "'\"\\",
    " # : - {}",
    "\\ud83d",
]


@pytest.mark.parametrize("text", ODD)
async def test_any_text_arrives_as_it_was(cluster: Cluster, namespace: str, text: str) -> None:
    """An apply patch is read by a YAML parser, with rules of its own for what a text may hold."""
    assert (await cluster.apply(config_map(namespace, a=text)))["data"] == {"a": text}


async def test_apply_removes_what_is_no_longer_said(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(config_map(namespace, a="1", b="2"))
    assert (await cluster.apply(config_map(namespace, a="1")))["data"] == {"a": "1"}


async def test_get_of_nothing_and_of_an_absent_api(cluster: Cluster, namespace: str) -> None:
    assert await cluster.get(Key("v1", "ConfigMap", namespace, "none")) is None
    assert await cluster.get(Key("networking.serving.volcano.sh/v1alpha1", "ModelRoute", namespace, "none")) is None


async def test_dry_run_writes_nothing(cluster: Cluster, namespace: str) -> None:
    assert (await cluster.apply(config_map(namespace, a="1"), dry_run=True))["data"] == {"a": "1"}
    assert await cluster.get(key_of(config_map(namespace))) is None


async def test_without_force_another_managers_field_is_a_conflict(cluster: Cluster, namespace: str) -> None:
    await cluster.create(config_map(namespace, a="1"))  # by another operation, so another manager
    with pytest.raises(ClusterError) as caught:
        await cluster.apply(config_map(namespace, a="2"), force=False)
    assert (caught.value.status, caught.value.reason, caught.value.transient) == (409, "Conflict", False)
    assert (await cluster.apply(config_map(namespace, a="2")))["data"] == {"a": "2"}


async def test_create_twice(cluster: Cluster, namespace: str) -> None:
    first = await cluster.create(config_map(namespace))
    assert isinstance(first, dict)
    assert isinstance(await cluster.create(config_map(namespace)), Conflict)


async def test_replace_is_compare_and_swap(cluster: Cluster, namespace: str) -> None:
    seen = await cluster.apply(config_map(namespace, a="1"))
    second = await cluster.replace({**seen, "data": {"a": "2"}})
    assert isinstance(second, dict)
    late = await cluster.replace({**seen, "data": {"a": "3"}})
    assert isinstance(late, Conflict)
    assert late.key == key_of(seen)
    live = await cluster.get(key_of(seen))
    assert live is not None
    assert live["data"] == {"a": "2"}


async def test_replace_without_a_version_is_refused_here(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(ValueError, match="resourceVersion"):
        await cluster.replace(config_map(namespace))


async def test_delete_only_what_was_seen(cluster: Cluster, namespace: str) -> None:
    seen = await cluster.apply(config_map(namespace, a="1"))
    key, meta = key_of(seen), seen["metadata"]
    await cluster.apply(config_map(namespace, a="2"))
    assert isinstance(await cluster.delete(key, uid=meta["uid"], resource_version=meta["resourceVersion"]), Conflict)
    assert isinstance(await cluster.delete(key, uid="00000000-0000-0000-0000-000000000000"), Conflict)
    assert await cluster.delete(key, uid=meta["uid"]) is None
    assert await cluster.get(key) is None
    assert await cluster.delete(key, uid=meta["uid"]) is None


async def test_list_reads_every_page(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        await cluster.apply(config_map(namespace, f"settings-{number}"))
    monkeypatch.setattr("kvpp_operator.cluster.client.PAGE", 3)
    found = [item async for item in cluster.list(CONFIG_MAPS, namespace=namespace, metadata_only=True)]
    ours = [key_of(item) for item in found if item["metadata"]["name"].startswith("settings")]
    assert ours == [Key("v1", "ConfigMap", namespace, f"settings-{number}") for number in range(7)]
    assert all("data" not in item for item in found)


async def test_list_by_label(cluster: Cluster, namespace: str) -> None:
    marked = config_map(namespace, "marked")
    marked["metadata"]["labels"] = {"mark": "yes"}
    await cluster.apply(marked)
    await cluster.apply(config_map(namespace, "plain"))
    found = [item async for item in cluster.list(CONFIG_MAPS, namespace=namespace, labels="mark=yes")]
    assert [item["metadata"]["name"] for item in found] == ["marked"]


async def test_status_of_the_object_that_was_seen(
    cluster: Cluster, namespace: str, deployment: Callable[..., Manifest]
) -> None:
    body = await cluster.apply(deployment())
    condition = {"type": "Ready", "status": "False", "reason": "Starting", "message": "", "observedGeneration": 1}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    first = await cluster.apply_status(body, {"observedGeneration": 1, "conditions": [condition]})
    assert isinstance(first, dict)
    assert first["status"]["conditions"] == [condition]
    second = await cluster.apply_status(first, {"observedGeneration": 2})
    assert isinstance(second, dict)
    assert second["status"] == {"observedGeneration": 2}
    assert isinstance(await cluster.apply_status(body, {"observedGeneration": 3}), Conflict)


async def test_a_status_is_not_for_the_successor(
    cluster: Cluster, namespace: str, deployment: Callable[..., Manifest]
) -> None:
    body = await cluster.apply(deployment())
    await cluster.delete(key_of(body), uid=body["metadata"]["uid"])
    await cluster.apply(deployment())
    assert isinstance(await cluster.apply_status(body, {"observedGeneration": 1}), Conflict)


async def test_the_servers_own_words(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(ClusterError, match=r'namespaces "absent" not found') as caught:
        await cluster.apply(config_map("absent"))
    assert (caught.value.status, caught.value.reason, caught.value.transient) == (404, "NotFound", False)


async def test_serves(cluster: Cluster) -> None:
    assert await cluster.serves(CONFIG_MAPS)
    assert not await cluster.serves(Kind("networking.serving.volcano.sh/v1alpha1", "ModelRoute", "modelroutes"))
    assert not await cluster.serves(Kind("apps/v1", "Nothing", "nothings"))


async def test_attempts_are_observed(access: Access, namespace: str) -> None:
    seen: list[tuple[str, str, int]] = []
    async with Cluster(access, observe=lambda verb, kind, status, _: seen.append((verb, kind, status))) as cluster:
        await cluster.apply(config_map(namespace))
        await cluster.get(Key("v1", "ConfigMap", namespace, "none"))
    assert seen == [("APPLY", "ConfigMap", 201), ("GET", "ConfigMap", 404)]
