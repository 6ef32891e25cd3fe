"""Where a pool is, who runs it, what its layout is."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from specs import DISAGGREGATED, ROOT, UNIFIED, planned

from kvpp_operator.api.model import Image
from kvpp_operator.catalogue import pools
from kvpp_operator.configuration import DEFAULT_POOL_IMAGE, Configuration
from kvpp_operator.plan.model import Plan
from kvpp_operator.plan.pool import (
    Endpoint,
    MemcachePlan,
    PoolPlan,
    image_reference,
    memcache_share,
    plan_pool,
)
from kvpp_operator.pool_layout import changes

LATEST = {"engine": {"version": "latest"}}
PlanOf = Callable[..., Plan]
Pooled = Callable[..., dict[str, Any]]


def pool_of(plan: Plan) -> PoolPlan:
    assert plan.pool is not None
    return plan.pool


def memcache(**settings: Any) -> dict[str, Any]:
    return {"backend": "Memcache", "memcache": settings}


def test_without_a_pool_there_is_none(plan_of: PlanOf, pooled: Pooled) -> None:
    body = pooled(UNIFIED, {})
    del body["spec"]["pooling"]
    assert plan_of(body).pool is None


@pytest.mark.parametrize(
    ("external", "rpc", "store"),
    [
        ({"address": "meta.kv.svc:5000"}, "meta.kv.svc:5000", "meta.kv.svc:6000"),
        (
            {"address": "meta.kv.svc:5100", "configStoreAddress": "store.kv.svc:6001"},
            "meta.kv.svc:5100",
            "store.kv.svc:6001",
        ),
        ({"address": "[fd00::1]:5000"}, "[fd00::1]:5000", "[fd00::1]:6000"),
    ],
)
def test_an_existing_meta_service(external: Any, rpc: str, store: str, plan_of: PlanOf, pooled: Pooled) -> None:
    pool = pool_of(plan_of(pooled(UNIFIED, memcache(metaService={"external": external}))))
    assert pool.service is None
    assert [str(endpoint) for endpoint in pool.endpoints] == [rpc, store]


def test_a_meta_service_of_ours_is_reached_by_its_service(plan_of: PlanOf, pooled: Pooled) -> None:
    pool = pool_of(plan_of(pooled(UNIFIED, memcache())))
    assert [str(endpoint) for endpoint in pool.endpoints] == [
        f"{pool.name}.default.svc:5000",
        f"{pool.name}.default.svc:6000",
    ]


def test_ports_that_are_claims(plan_of: PlanOf, pooled: Pooled) -> None:
    resolved = plan_of(pooled(UNIFIED, memcache())).resolved
    pool = plan_pool(resolved, "engine:1", {"rpc": 17100, "store": 17101, "http": 17102})
    assert pool is not None
    assert [endpoint.port for endpoint in pool.endpoints] == [17100, 17101]


@pytest.mark.parametrize(
    ("version", "pooling", "package"),
    [
        ("0.28.0rc1", {"backend": "Memcache", "role": "Producer"}, "1.2.1"),
        ("0.30.0rc2", {"backend": "Memcache"}, "1.3.0"),
        ("latest", {"backend": "Mooncake", "mooncake": {"layerwise": {}}}, "0.3.13.post1"),
    ],
)
def test_the_service_speaks_the_clients_version(
    version: str, pooling: Any, package: str, plan_of: PlanOf, pooled: Pooled
) -> None:
    service = pool_of(plan_of(pooled(UNIFIED | {"engine": {"version": version}}, pooling))).service
    assert service is not None
    assert (service.image, service.version) == (DEFAULT_POOL_IMAGE, package)


def test_a_released_mooncake_runs_in_the_engines_image(plan_of: PlanOf, pooled: Pooled) -> None:
    """Its master wants CANN, and speaks its own clients' version."""
    plan = plan_of(pooled(UNIFIED, {"backend": "Mooncake"}, kvpp__enabled=False))
    service = pool_of(plan).service
    assert service is not None
    assert (service.image, service.version) == (plan.roles[0].image, "")


def test_the_pool_image_has_the_projects_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"localhost/kvpp-pool:{version}" == DEFAULT_POOL_IMAGE  # as images/build.py names it


def test_every_release_has_a_meta_service_that_the_image_brings() -> None:
    locks = {path.name for path in (ROOT / "images" / "pool").glob("*.lock")}
    assert {f"memcache-{version}.lock" for version in pools.META_SERVICE_VERSION.values()} <= locks
    assert {f"mooncake-{version}.lock" for version in pools.MASTER_VERSION.values()} <= locks


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        (Image(), "kvpp-pool:1"),
        (Image(repository="mirror:5000/pool"), "mirror:5000/pool:1"),
        (Image(tag="2"), "kvpp-pool:2"),
        (Image(digest=f"sha256:{'0' * 64}"), f"kvpp-pool@sha256:{'0' * 64}"),
    ],
)
def test_an_image_of_the_users(image: Image, reference: str) -> None:
    assert image_reference(image, "kvpp-pool:1") == reference


def test_the_operators_configuration_names_the_image(pooled: Pooled) -> None:
    mirrored = Configuration(poolImage="mirror.example:5000/kvpp-pool")
    tagged = pooled(UNIFIED, memcache(metaService={"image": {"tag": "t"}}))
    for body, image in ((pooled(UNIFIED, memcache()), mirrored.pool_image), (tagged, f"{mirrored.pool_image}:t")):
        service = pool_of(planned(body, mirrored)).service
        assert service is not None
        assert service.image == image


@pytest.mark.parametrize(
    ("accelerator", "protocol"),
    [
        ({"chip": "A2"}, "DeviceRdma"),
        ({"chip": "A3"}, "DeviceSdma"),
        ({"chip": "A3", "interconnect": "RoCE"}, "DeviceRdma"),
        ({"chip": "950DT"}, "DeviceUrma"),
        ({"chip": "950PR", "interconnect": "UBoE"}, "DeviceUboe"),
    ],
)
def test_the_protocol_follows_from_chip_and_interconnect(
    accelerator: Any, protocol: str, plan_of: PlanOf, pooled: Pooled
) -> None:
    spec = UNIFIED | {"accelerator": accelerator, "unified": {"parallelism": {"tensor": 8}}}
    backend = pool_of(plan_of(pooled(spec, memcache()))).backend
    assert isinstance(backend, MemcachePlan)
    assert backend.protocol == protocol


@pytest.mark.parametrize(
    ("size", "protocol", "share"),
    [
        (64 * 2**30, "DeviceUrma", (64 * 2**30, "64GB")),
        (64 * 10**9, "DeviceRdma", (60 * 2**30, "60GB")),
        (2**30 + 1, "HostTcp", (2**30 + 2**21, "1026MB")),
        (2**31, "HostShm", (2**31, "2GB")),
    ],
)
def test_a_share_is_rounded_up_as_the_client_does(size: int, protocol: str, share: tuple[int, str]) -> None:
    assert memcache_share(size, protocol) == share


LAYOUT_CHANGES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"unified__parallelism__tensor": 4}, ("tensor parallelism 8 → 4",)),
    ({"unified__parallelism__data": 1, "unified__replicas": 8}, ()),
    ({"unified__parallelism__prefillContext": 2, "unified__parallelism__tensor": 4},
     ("tensor parallelism 8 → 4", "prefill context parallelism 1 → 2")),
    ({"unified__parallelism__pipeline": 2, "unified__parallelism__pipelineLayers": [38, 40]},
     ("pipeline parallelism 1 → 2", "the layer partition even → 38,40")),
    ({"kvpp__enabled": False}, ("KVPP on → off",)),
    ({"kvCache__indexer": "C8"}, ("the indexer cache's type model → fp8",)),
    ({"kvCache__main": "C8", "kvCache__indexer": "C4"},
     ("the main cache's type model → fp8", "the indexer cache's type model → mxfp4")),
    ({"model__source": {"huggingFace": {"repo": "org/model", "revision": "v2"}}},
     ("the weights path /mnt/models/GLM-5.2 → repo org/model@v2",)),
    ({"model__quantization": None}, ("the quantization ascend → none",)),
    ({"pooling__memcache__metaConfig": {"ock.mmc.evict_threshold_high": "85"}}, ()),
    ({"pooling__memcache__memoryPerDevice": "32Gi"}, ()),
    ({"engine__extraArgs": ["--seed", "1"]}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "what"), LAYOUT_CHANGES)
def test_what_makes_a_pool_cold(edit: dict[str, Any], what: tuple[str, ...], plan_of: PlanOf, pooled: Pooled) -> None:
    """Another layout has another pool; the same layout keeps it."""
    base = pooled(UNIFIED | LATEST, memcache())
    before = pool_of(plan_of(base))
    after = pool_of(plan_of(pooled(UNIFIED | LATEST, memcache(), **edit)))
    assert changes(before.layout.to_json(), after.layout.to_json()) == what
    assert (after.name == before.name) is (not what)


def test_another_backend_is_another_pool(plan_of: PlanOf, pooled: Pooled) -> None:
    before = pool_of(plan_of(pooled(UNIFIED | LATEST, memcache())))
    after = pool_of(plan_of(pooled(UNIFIED | LATEST, {"backend": "Mooncake", "mooncake": {"layerwise": {}}})))
    assert changes(before.layout.to_json(), after.layout.to_json()) == (
        "the backend Memcache → Mooncake", "the backend's version 1.3.0 → 0.3.13.post1", "layerwise loading off → on",
    )  # fmt: skip


def test_a_layout_of_an_older_operator_is_compared_as_far_as_it_goes() -> None:
    assert changes({"tensor": 8}, {"tensor": 8, "kvpp": True}) == ()


@pytest.mark.parametrize("name", ["a", "9" * 63, f"{'x' * 40}-y"])
def test_names_leave_room_for_what_a_stateful_set_adds(name: str, plan_of: PlanOf, pooled: Pooled) -> None:
    pool = pool_of(plan_of(pooled(UNIFIED, memcache(), name=name)))
    assert len(pool.name) <= 52
    assert pool.name[0].isalpha()


def test_prefill_joins_in_a_split_deployment(plan_of: PlanOf, pooled: Pooled) -> None:
    plan = plan_of(pooled(DISAGGREGATED | LATEST, memcache()))
    assert pool_of(plan).layout.tensor == 8


@pytest.mark.parametrize(
    ("spec", "service"),
    [
        (memcache(), None),
        (memcache(metaService={"podTemplate": {"spec": {"hostNetwork": True}}}), "meta-service"),
        (memcache(metaService={"external": {"address": "a:1"}}), None),
        (
            {"backend": "Mooncake", "mooncake": {"master": {"podTemplate": {"spec": {"hostNetwork": True}}}}},
            "mooncake-master",
        ),
    ],
)
def test_which_service_needs_ports_of_a_host(spec: Any, service: str | None, plan_of: PlanOf, pooled: Pooled) -> None:
    pooling = plan_of(pooled(UNIFIED, spec, kvpp__enabled=False)).resolved.spec.pooling
    assert pools.pool_service_on_host_network(pooling) == service


def test_endpoints_are_read_back() -> None:
    for text in ("meta.kv.svc:5000", "10.0.0.1:5000", "[fd00::1]:5000"):
        assert str(Endpoint.parse(text)) == text
