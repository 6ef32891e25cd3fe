"""A pool's own objects, and what joining it adds to engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from specs import DISAGGREGATED, ROOT, UNIFIED, read

from kvpp_operator import names
from kvpp_operator.catalogue import pools
from kvpp_operator.cluster.satisfied import satisfied
from kvpp_operator.manifest import Manifest
from kvpp_operator.plan.model import Plan
from kvpp_operator.render.environment import TRANSFER_TIMEOUT_MILLISECONDS
from kvpp_operator.render.objects import revision_of

LATEST = {"engine": {"version": "latest"}}
Objects = dict[tuple[str, str], Manifest]
ObjectsOf = Callable[..., Objects]
PlanOf = Callable[..., Plan]
Pooled = Callable[..., dict[str, Any]]

MEMCACHE = {"backend": "Memcache"}
ELECTED = {"backend": "Memcache", "memcache": {"metaService": {"replicas": 2}}}
MOONCAKE = {"backend": "Mooncake", "mooncake": {"layerwise": {}}}
EXTERNAL: list[dict[str, Any]] = [
    {"backend": "Memcache", "memcache": {"metaService": {"external": {"address": "m:5000"}}}},
    {
        "backend": "Memcache",
        "memcache": {"metaService": {"external": {"address": "m:5000", "configStoreAddress": "s:6001"}}},
    },
    {"backend": "Mooncake", "mooncake": {"layerwise": {}, "master": {"external": {"address": "m:50088"}}}},
]


def of_kind(made: Objects, kind: str, *, pool: bool = True) -> Manifest:
    """The one object of a kind that belongs to the pool, or to an engine."""
    found = [one for (k, name), one in made.items() if k == kind and ("-pool-" in name) is pool]
    assert len(found) == 1, found
    return found[0]


def kinds(made: Objects) -> list[str]:
    return sorted(kind for kind, name in made if "-pool-" in name)


def engine_pod(made: Objects) -> dict[str, Any]:
    pod: dict[str, Any] = of_kind(made, "Deployment", pool=False)["spec"]["template"]
    return pod


def test_one_meta_service(objects_of: ObjectsOf, pooled: Pooled) -> None:
    made = objects_of(pooled(UNIFIED, MEMCACHE))
    assert kinds(made) == [
        "ConfigMap",
        "ConfigMap",
        "ControllerRevision",
        "Deployment",
        "NetworkPolicy",
        "Service",
        "ServiceAccount",
    ]
    assert of_kind(made, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert of_kind(made, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_several_meta_services_elect_one(objects_of: ObjectsOf, pooled: Pooled) -> None:
    made = objects_of(pooled(UNIFIED, ELECTED))
    assert kinds(made) == [
        "ConfigMap", "ConfigMap", "ControllerRevision", "Lease", "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "Service",
        "ServiceAccount", "StatefulSet",
    ]  # fmt: skip
    name = of_kind(made, "StatefulSet")["metadata"]["name"]
    assert of_kind(made, "Role")["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [name],
            "verbs": ["get", "update", "patch"],
        },
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "resourceNames": [f"{name}-0", f"{name}-1"],
            "verbs": ["get", "patch"],
        },
    ]
    container = of_kind(made, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    assert {"META_POD_NAME", "META_POD_IP", "META_NAMESPACE", "META_LEASE_NAME"} <= {
        v["name"] for v in container["env"]
    }


def test_nobody_fights_over_the_leaders_label(objects_of: ObjectsOf, pooled: Pooled) -> None:
    """The Service follows it; no template or selector of ours carries it; a pod that has it is as we wished."""
    made = objects_of(pooled(UNIFIED, ELECTED))
    workload = of_kind(made, "StatefulSet")
    assert of_kind(made, "Service")["spec"]["selector"]["role"] == "master"
    assert "role" not in workload["spec"]["selector"]["matchLabels"]
    pod = {"metadata": workload["spec"]["template"]["metadata"]}
    labelled = {"metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], "role": "master"}}}
    assert satisfied(pod, labelled)


def test_nobody_fights_over_the_leases_holder(objects_of: ObjectsOf, pooled: Pooled) -> None:
    lease = of_kind(objects_of(pooled(UNIFIED, ELECTED)), "Lease")
    held = {**lease, "spec": {**lease["spec"], "holderIdentity": "pod-0", "renewTime": "2026-01-01T00:00:00.000000Z"}}
    assert satisfied(lease, held)


def test_scaling_does_not_touch_the_meta_service(objects_of: ObjectsOf, pooled: Pooled) -> None:
    one, eight = (objects_of(pooled(DISAGGREGATED | LATEST, ELECTED, prefill__replicas=n)) for n in (1, 8))
    assert of_kind(one, "StatefulSet") == of_kind(eight, "StatefulSet")
    assert {key: one[key] for key in one if "-pool-" in key[1]} == {
        key: eight[key] for key in eight if "-pool-" in key[1]
    }


def test_another_threshold_replaces_its_pods_and_no_engine(
    objects_of: ObjectsOf, plan_of: PlanOf, pooled: Pooled
) -> None:
    edited = {"backend": "Memcache", "memcache": {"metaConfig": {"ock.mmc.evict_threshold_high": "85"}}}
    before, after = (objects_of(pooled(UNIFIED, pooling)) for pooling in (MEMCACHE, edited))
    assert of_kind(before, "Deployment")["spec"]["template"] != of_kind(after, "Deployment")["spec"]["template"]
    revisions = {revision_of(plan_of(pooled(UNIFIED, pooling))).hash for pooling in (MEMCACHE, edited)}
    assert len(revisions) == 1


def test_what_engines_read_makes_another_revision(plan_of: PlanOf, pooled: Pooled) -> None:
    edited = {"backend": "Memcache", "memcache": {"localConfig": {"ock.mmc.client.timeout.seconds": "30"}}}
    revisions = {revision_of(plan_of(pooled(UNIFIED, pooling))).hash for pooling in (MEMCACHE, edited)}
    assert len(revisions) == 2


@pytest.mark.parametrize("pooling", EXTERNAL)
def test_an_existing_pool_is_never_ours(pooling: dict[str, Any], objects_of: ObjectsOf, pooled: Pooled) -> None:
    """Only the file that our engines read is."""
    assert kinds(objects_of(pooled(UNIFIED | LATEST, pooling))) == ["ConfigMap", "ControllerRevision"]


@pytest.mark.parametrize(
    ("pooling", "waits_for"),
    list(zip(EXTERNAL, (["m:5000", "m:6000"], ["m:5000", "s:6001"], ["m:50088"]), strict=True)),
)
def test_engines_wait_for_the_pool(
    pooling: dict[str, Any], waits_for: list[str], objects_of: ObjectsOf, pooled: Pooled
) -> None:
    pod = engine_pod(objects_of(pooled(UNIFIED | LATEST, pooling)))["spec"]
    [wait] = pod["initContainers"]
    assert wait["command"][2:] == waits_for
    assert wait["image"] == pod["containers"][0]["image"]
    assert "limits" not in wait["resources"]


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]}


def test_an_engine_in_a_memcache_pool(objects_of: ObjectsOf, pooled: Pooled) -> None:
    made = objects_of(pooled(UNIFIED, MEMCACHE))
    pod = engine_pod(made)
    container = pod["spec"]["containers"][0]
    env = environment(pod)
    assert env["PYTHONHASHSEED"] == "0"
    assert env["MF_GROUP_JOIN_MAX_TIMEOUT"] == "1200"
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    # A regular file at the path that the client reads: it refuses links.
    [mounted] = [mount for mount in container["volumeMounts"] if mount["mountPath"] == env["MMC_LOCAL_CONFIG_PATH"]]
    assert mounted["subPath"] == "mmc-local.conf"
    [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == mounted["name"]]
    text = made["ConfigMap", volume["configMap"]["name"]]["data"]["mmc-local.conf"]
    service = of_kind(made, "Service")["metadata"]["name"]
    assert text.splitlines()[1:] == [
        f"ock.mmc.meta_service_url = tcp://{service}.default.svc:5000",
        f"ock.mmc.local_service.config_store_url = tcp://{service}.default.svc:6000",
        "ock.mmc.local_service.world_size = 1024",
        "ock.mmc.local_service.protocol = device_urma",
        "ock.mmc.local_service.dram.size = 64GB",
        "ock.mmc.client.retry_milliseconds = 30000",
    ]


def test_local_services_that_listen_get_their_pods_address(objects_of: ObjectsOf, pooled: Pooled) -> None:
    made = objects_of(pooled(UNIFIED, {"backend": "Memcache", "memcache": {"protocol": "HostRdma"}}))
    pod = engine_pod(made)["spec"]
    [wait] = pod["initContainers"]
    assert wait["command"][-3:] == ["--fill", "/etc/kvpp-pool-source/mmc-local.conf", "/etc/kvpp-pool/mmc-local.conf"]
    assert {variable["name"]: variable.get("value") for variable in wait["env"]} == {
        "POD_IP": None,
        "LOCAL_SERVICE_PORT": "7000",
    }
    assert {"name": "pool-files", "emptyDir": {}} in pod["volumes"]
    text = next(one["data"]["mmc-local.conf"] for one in made.values() if "mmc-local.conf" in one.get("data", {}))
    assert "ock.mmc.local_service.hcom_url = tcp://$(POD_IP):$(LOCAL_SERVICE_PORT)" in text


def test_an_engine_in_a_mooncake_pool(objects_of: ObjectsOf, pooled: Pooled) -> None:
    edited = {
        "backend": "Mooncake",
        "mooncake": {"layerwise": {}, "memoryPerDevice": "40Gi", "config": {"tenant_id": "a"}},
    }
    made = objects_of(pooled(UNIFIED | LATEST, edited))
    pod = engine_pod(made)
    assert environment(pod)["MOONCAKE_CONFIG_PATH"] == "/etc/kvpp-pool/mooncake.json"
    service = of_kind(made, "Service")["metadata"]["name"]
    assert json.loads(of_kind(made, "ConfigMap")["data"]["mooncake.json"]) == {
        "metadata_server": "P2PHANDSHAKE", "protocol": "ascend", "device_name": "", "tenant_id": "a",
        "master_server_address": f"{service}.default.svc:50088", "global_segment_size": "40GB",
    }  # fmt: skip


def test_decode_only_hashes_alike(objects_of: ObjectsOf, pooled: Pooled) -> None:
    made = objects_of(pooled(DISAGGREGATED | LATEST, MEMCACHE))
    decode = next(
        one
        for one in made.values()
        if one["kind"] == "Deployment" and one["metadata"]["labels"].get(names.ROLE) == "decode"
    )
    pod = decode["spec"]["template"]
    assert environment(pod)["PYTHONHASHSEED"] == "0"
    assert "MMC_LOCAL_CONFIG_PATH" not in environment(pod)
    assert "initContainers" not in pod["spec"]


@pytest.mark.parametrize(
    ("accelerator", "pages", "memory"),
    [
        ({"chip": "A2"}, "512Gi", None),
        ({"chip": "A3", "interconnect": "RoCE"}, "512Gi", None),
        ({"chip": "A3"}, None, "512Gi"),
        ({"chip": "950DT"}, None, "512Gi"),
        ({"chip": "A2", "hugePages": "0"}, None, "512Gi"),
        ({"chip": "A2", "hugePages": "96Gi"}, "96Gi", None),
    ],
)
def test_what_is_lent_is_asked_for(
    accelerator: dict[str, Any], pages: str | None, memory: str | None, objects_of: ObjectsOf, pooled: Pooled
) -> None:
    spec = UNIFIED | {"accelerator": accelerator, "unified": {"parallelism": {"tensor": 8}}}
    pod = engine_pod(objects_of(pooled(spec, MEMCACHE)))["spec"]
    resources = pod["containers"][0]["resources"]
    assert resources["requests"].get("hugepages-2Mi") == resources["limits"].get("hugepages-2Mi") == pages
    assert resources["requests"].get("memory") == memory
    mounted = [volume for volume in pod["volumes"] if volume.get("emptyDir", {}).get("medium") == "HugePages-2Mi"]
    assert bool(mounted) is (pages is not None)


def test_a_mooncake_master(objects_of: ObjectsOf, pooled: Pooled) -> None:
    edited = {"backend": "Mooncake", "mooncake": {"layerwise": {}, "master": {"args": ["--eviction_ratio=0.2"]}}}
    made = objects_of(pooled(UNIFIED | LATEST, edited))
    assert kinds(made) == [
        "ConfigMap",
        "ControllerRevision",
        "Deployment",
        "NetworkPolicy",
        "Service",
        "ServiceAccount",
    ]
    container = of_kind(made, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == [
        "--port=50088", "--metrics_port=9003", "--default_kv_lease_ttl=11000", "--client_ttl=120",
        "--eviction_high_watermark_ratio=0.9", "--eviction_ratio=0.1", "--logtostderr", "--eviction_ratio=0.2",
    ]  # fmt: skip
    assert {port["name"]: port["port"] for port in of_kind(made, "Service")["spec"]["ports"]} == {
        "rpc": 50088,
        "metrics": 9003,
    }


def test_a_lease_outlives_a_transfer() -> None:
    assert int(TRANSFER_TIMEOUT_MILLISECONDS) < pools.MASTER_LEASE_MILLISECONDS


@pytest.mark.parametrize("pooling", [MEMCACHE, ELECTED, MOONCAKE])
def test_a_service_meets_pod_security_restricted(
    pooling: dict[str, Any], objects_of: ObjectsOf, pooled: Pooled
) -> None:
    made = objects_of(pooled(UNIFIED | LATEST, pooling))
    workload = next(
        one for (kind, name), one in made.items() if kind in ("Deployment", "StatefulSet") and "-pool-" in name
    )
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not any("hostPath" in volume for volume in pod["volumes"])


def test_only_engines_that_join_reach_the_service(objects_of: ObjectsOf, pooled: Pooled) -> None:
    policy = of_kind(objects_of(pooled(DISAGGREGATED | LATEST, MEMCACHE)), "NetworkPolicy")["spec"]
    joined = {"podSelector": {"matchLabels": {names.DEPLOYMENT: "demo", names.ROLE: "prefill"}}}
    assert policy["ingress"] == [
        {"from": [joined], "ports": [{"port": "rpc", "protocol": "TCP"}, {"port": "store", "protocol": "TCP"}]},
        {"from": [{"podSelector": {}}], "ports": [{"port": "http", "protocol": "TCP"}]},
    ]


def test_no_policy_where_it_would_see_nodes(objects_of: ObjectsOf, pooled: Pooled) -> None:
    on_host = {"backend": "Memcache", "memcache": {"metaService": {"podTemplate": {"spec": {"hostNetwork": True}}}}}
    made = objects_of(pooled(UNIFIED, on_host))
    assert "NetworkPolicy" not in kinds(made)
    assert of_kind(made, "Deployment")["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_the_users_pod_template_comes_on_top(objects_of: ObjectsOf, pooled: Pooled) -> None:
    template = {
        "metadata": {"annotations": {"team": "kv"}},
        "spec": {
            "containers": [{"name": "meta-service", "resources": {"limits": {"memory": "4Gi"}}}],
            "priorityClassName": "high",
        },
    }
    made = objects_of(pooled(UNIFIED, {"backend": "Memcache", "memcache": {"metaService": {"podTemplate": template}}}))
    pod = of_kind(made, "Deployment")["spec"]["template"]
    assert pod["metadata"]["annotations"]["team"] == "kv"
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "4Gi"}
    assert pod["spec"]["containers"][0]["command"][0] == "python3"


@pytest.mark.parametrize(
    ("example", "pool_kinds"),
    [
        ("4-memcache-pool.yaml", ["ConfigMap", "ConfigMap", "ControllerRevision", "Lease", "NetworkPolicy", "PodDisruptionBudget", "Role",
                                  "RoleBinding", "Service", "ServiceAccount", "StatefulSet"]),
        ("5-mooncake-layerwise.yaml", ["ConfigMap", "ControllerRevision"]),
    ],
)  # fmt: skip
def test_the_samples(example: str, pool_kinds: list[str], objects_of: ObjectsOf) -> None:
    [body] = read(ROOT / "examples" / example)
    assert kinds(objects_of(body)) == pool_kinds


def test_all_ranks_of_an_engine_read_the_same_file(plan_of: PlanOf, pooled: Pooled) -> None:
    spec = UNIFIED | LATEST | {"unified": {"parallelism": {"tensor": 8, "pipeline": 2, "pipelineLayers": [38, 40]}}}
    template = revision_of(plan_of(pooled(spec, MEMCACHE))).templates["unified"]["workload"]
    group = template["spec"]["leaderWorkerTemplate"]
    leader, worker = (group[part]["spec"] for part in ("leaderTemplate", "workerTemplate"))
    assert leader["initContainers"] == worker["initContainers"]
    assert (
        environment({"spec": worker})["MMC_LOCAL_CONFIG_PATH"] == environment({"spec": leader})["MMC_LOCAL_CONFIG_PATH"]
    )
