"""The cache holds the newest state whatever the order in which watches, lists and answers arrive."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpp_operator import names
from kvpp_operator.cluster.cache import TOMBSTONES, Cache, is_renewal
from kvpp_operator.manifest import API_VERSION, KIND, DeploymentKey, Key, Manifest, Owner, key_of

GLM = DeploymentKey("team-a", "glm")
OWNER = Owner(GLM, "owner-1")


def child(name: str = "settings", *, uid: str = "1", version: int = 1, **fields: Any) -> Manifest:
    meta = {"name": name, "namespace": "team-a", "uid": uid, "resourceVersion": str(version)}
    meta["ownerReferences"] = [OWNER.reference]  # type: ignore[assignment]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **fields}


def deployment(version: int = 1, **conditions: str) -> Manifest:
    meta = {"name": "glm", "namespace": "team-a", "uid": "owner-1", "resourceVersion": str(version)}
    status = {"conditions": [{"type": name, "status": value} for name, value in conditions.items()]}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": {"a": "b"}, "status": status}


def pod(**labels: str) -> Manifest:
    meta = {"name": "pod", "namespace": "team-a", "uid": "p", "resourceVersion": "1", "labels": labels}
    container = {"name": "vllm", "image": "x", "env": [{"name": "A", "value": "1" * 1000}]}
    spec = {"nodeName": "n1", "containers": [container], "volumes": [{"name": "v"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def lease(version: int, duration: int = 10, uid: str = "l", **held: Any) -> Manifest:
    spec = {"leaseDurationSeconds": duration, **held}
    return {
        **child("pool", uid=uid, version=version),
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "spec": spec,
    }


SETTINGS = key_of(child())


@pytest.mark.parametrize(
    ("now", "is_one"),
    [
        (lease(2, renewTime="2026-01-01T00:00:03.000000Z"), True),
        (lease(2, holderIdentity="pod-1"), True),
        (lease(2, duration=15), False),
        (lease(2, uid="another"), False),
        (None, False),
    ],
)
def test_a_renewal_is_told_from_news(now: Manifest | None, *, is_one: bool) -> None:
    cache = Cache()
    cache.put(lease(1, renewTime="2026-01-01T00:00:00.000000Z"))
    before = cache.entry(key_of(lease(1)))
    if now is None:
        cache.drop(key_of(lease(1)), uid="l")
    else:
        cache.put(now)
    assert is_renewal(before, cache.entry(key_of(lease(1)))) is is_one


class TestContent:
    def test_comes_back_without_managed_fields(self) -> None:
        cache, manifest = Cache(), child(data={"a": "1"})
        noisy = copy.deepcopy(manifest)
        noisy["metadata"]["managedFields"] = [{"manager": "x"}]
        assert cache.put(noisy)
        assert cache.get(SETTINGS) == manifest

    def test_a_copy_is_handed_out(self) -> None:
        cache = Cache()
        cache.put(child(data={"a": "1"}))
        first = cache.get(SETTINGS)
        assert first is not None
        first["data"]["a"] = "2"
        assert cache.get(SETTINGS) == child(data={"a": "1"})

    def test_any_unicode(self) -> None:
        cache, manifest = Cache(), child(data={"模型": "\U0001f680 \udcff"})
        cache.put(manifest)
        assert cache.get(SETTINGS) == manifest

    def test_a_pod_is_reduced(self) -> None:
        cache = Cache()
        cache.put(pod(**{names.DEPLOYMENT: "glm"}))
        (reduced,) = cache.pods(GLM)
        assert reduced["spec"] == {"nodeName": "n1", "containers": [{"name": "vllm"}]}
        assert reduced["status"] == {"phase": "Running"}

    def test_of_a_lease_stays_what_we_wish(self) -> None:
        cache = Cache()
        cache.put(lease(1, renewTime="2026-01-01T00:00:00.000000Z", holderIdentity="pod-0"))
        found = cache.get(key_of(lease(1)))
        assert found == lease(1)

    def test_a_deployment_is_whole(self) -> None:
        cache = Cache()
        cache.put(deployment())
        assert cache.deployment(GLM) == deployment()
        assert cache.deployments() == (GLM,)


class TestByDeployment:
    def test_children_pods_and_the_deployment_are_apart(self) -> None:
        cache = Cache()
        for manifest in (deployment(), child("b"), child("a"), pod(**{names.DEPLOYMENT: "glm"})):
            cache.put(manifest)
        assert [manifest["metadata"]["name"] for manifest in cache.owned(GLM)] == ["a", "b"]
        assert [manifest["metadata"]["name"] for manifest in cache.pods(GLM)] == ["pod"]

    def test_another_namespace_is_another_deployment(self) -> None:
        cache = Cache()
        cache.put(child())
        assert cache.owned(DeploymentKey("team-b", "glm")) == ()

    def test_a_label_stands_in_for_a_missing_owner(self) -> None:
        cache, orphan = Cache(), child()
        orphan["metadata"] |= {"ownerReferences": [], "labels": {names.DEPLOYMENT: "glm"}}
        cache.put(orphan)
        assert cache.owned(GLM) == (orphan,)

    def test_follows_a_change_of_owner(self) -> None:
        cache, other = Cache(), DeploymentKey("team-a", "other")
        cache.put(child(version=1))
        moved = child(version=2)
        moved["metadata"]["ownerReferences"] = [Owner(other, "owner-2").reference]
        cache.put(moved)
        assert (cache.owned(GLM), cache.owned(other)) == ((), (moved,))


class TestOrder:
    def test_the_echo_of_our_own_write_is_no_news(self) -> None:
        cache = Cache()
        assert cache.put(child(version=2))
        assert not cache.put(child(version=2))

    def test_an_older_state_never_replaces_a_newer_one(self) -> None:
        cache = Cache()
        cache.put(child(version=10, data={"a": "new"}))
        assert not cache.put(child(version=9, data={"a": "old"}))
        assert cache.get(SETTINGS) == child(version=10, data={"a": "new"})

    def test_a_late_answer_brings_no_ghost_back(self) -> None:
        cache = Cache()
        cache.put(child(version=5))
        assert cache.drop(SETTINGS, uid="1", resource_version="7")
        assert not cache.put(child(version=6))
        assert cache.put(child(uid="2", version=8))

    def test_the_end_of_a_predecessor_is_not_the_end_of_its_successor(self) -> None:
        cache = Cache()
        cache.put(child(uid="2", version=8))
        assert not cache.drop(SETTINGS, uid="1", resource_version="7")
        assert cache.get(SETTINGS) is not None

    def test_versions_that_are_no_numbers_are_taken_as_they_come(self) -> None:
        cache = Cache()
        for version in ("b", "a"):
            manifest = child()
            manifest["metadata"]["resourceVersion"] = version
            assert cache.put(manifest)

    def test_deletions_remembered_are_bounded(self) -> None:
        cache = Cache()
        for number in range(TOMBSTONES + 10):
            cache.put(child(f"settings-{number}"))
            cache.drop(key_of(child(f"settings-{number}")), uid="1")
        assert len(cache) == 0
        assert cache.put(child("settings-0"))

    @given(st.permutations(range(6)), st.integers(0, 5))
    def test_any_order_ends_in_the_newest_state(self, order: list[int], deleted_at: int) -> None:
        """Six states of one name; up to `deleted_at` of a first object, which then is deleted, then of a second."""
        cache = Cache()
        for version in order:
            uid = "1" if version < deleted_at else "2"
            cache.put(child(uid=uid, version=10 + version))
            if version == deleted_at:
                cache.drop(SETTINGS, uid="1", resource_version=str(9 + deleted_at))
        assert cache.get(SETTINGS) == child(uid="1" if deleted_at > 5 else "2", version=15)


class TestConditions:
    def test_are_counted(self) -> None:
        cache = Cache()
        cache.put(deployment(1, Ready="False", Accepted="True"))
        cache.put(deployment(2, Ready="True", Accepted="True"))
        assert +cache.conditions == {("Ready", "True"): 1, ("Accepted", "True"): 1}
        cache.drop(Key(API_VERSION, KIND, *GLM), uid="owner-1")
        assert +cache.conditions == {}


def test_strings_that_keys_share_are_kept_once() -> None:
    cache = Cache()
    for name in ("a", "b"):
        manifest = child(name)
        manifest["kind"] = b"ConfigMap".decode()  # not the literal that the compiler shares
        cache.put(manifest)
    kinds = [key.kind for key in cache]
    assert all(one is other for one, other in itertools.pairwise(kinds))
