"""What a chip, its fabric and the cluster make of an engine's pod."""

from __future__ import annotations

from typing import Any

import pytest
import specs

from kvpp_operator.catalogue.chips import CHIPS
from kvpp_operator.configuration import Configuration
from kvpp_operator.manifest import Manifest
from kvpp_operator.pipeline import wished

SMALL = {"/etc/ascend_install.info": "File", "/usr/local/Ascend/driver/version.info": "File"}
HCCN = {"/etc/hccn.conf": "File", "/usr/local/Ascend/driver/tools/hccn_tool": "File"}
UB = {"/etc/hixlep": "Directory", "/lib/route.conf": "File", "/etc/hccl_rootinfo.json": "File"}
TREE = {"/usr/local/Ascend/driver": "Directory", "/usr/local/dcmi": "Directory", "/usr/local/bin/npu-smi": "File"}


def pods(body: dict[str, Any], configuration: Configuration | None = None) -> dict[str, Manifest]:
    """Pod spec of the first engine's head by role."""
    found: dict[str, Manifest] = {}
    for manifest in wished(specs.planned(body, configuration)):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Deployment" and manifest["metadata"]["labels"].get("serving.kvpp.io/engine"):
            found.setdefault(manifest["metadata"]["labels"]["serving.kvpp.io/role"], spec["template"])
        elif manifest["kind"] == "LeaderWorkerSet":
            role = manifest["metadata"]["labels"]["serving.kvpp.io/role"]
            found.setdefault(role, spec["leaderWorkerTemplate"]["leaderTemplate"])
    return found


def engine(pod: Manifest) -> dict[str, Any]:
    container: dict[str, Any] = next(one for one in pod["spec"]["containers"] if one["name"] == "vllm")
    return container


def env(pod: Manifest) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in engine(pod)["env"]}


def host_mounts(pod: Manifest) -> dict[str, str]:
    """Host path → type, of what the engine mounts at the same path, read-only."""
    paths = {v["name"]: v["hostPath"] for v in pod["spec"]["volumes"] if "hostPath" in v}
    mounted = {m["name"]: m for m in engine(pod)["volumeMounts"] if m["name"] in paths}
    assert mounted.keys() == paths.keys()
    assert all(mount["mountPath"] == paths[name]["path"] and mount["readOnly"] for name, mount in mounted.items())
    return {path["path"]: path["type"] for path in paths.values() if path["path"] != "/mnt/models/GLM-5.2"}


@pytest.mark.parametrize(
    ("chip", "changes", "resource", "image", "fabric", "mounts"),
    [
        ("A2", {}, "huawei.com/Ascend910", "v0.30.0rc2", {"HCCL_INTRA_ROCE_ENABLE": "1"}, {**SMALL, **HCCN}),
        ("A3", {}, "huawei.com/Ascend910", "v0.30.0rc2-a3", {"ACL_OP_INIT_MODE": "1", "ASCEND_ENABLE_USE_FABRIC_MEM": "1"}, {**SMALL, **HCCN}),
        ("A3", {"interconnect": "RoCE"}, "huawei.com/Ascend910", "v0.30.0rc2-a3", {"HCCL_INTRA_ROCE_ENABLE": "1"}, {**SMALL, **HCCN}),
        ("950DT", {}, "huawei.com/npu", "v0.30.0rc2-a5", {"ASCEND_LOCAL_COMM_RES": '{"version":"1.3"}'}, {**SMALL, **HCCN, **UB}),
        ("950PR", {"interconnect": "UBoE"}, "huawei.com/npu", "v0.30.0rc2-a5",
         {"ASCEND_GLOBAL_RESOURCE_CONFIG": '{"comm_resource_config.protocol_desc":["uboe:device"]}'}, {**SMALL, **HCCN, **UB}),
        ("A2", {"driverMounts": "Host"}, "huawei.com/Ascend910", "v0.30.0rc2", {"HCCL_INTRA_ROCE_ENABLE": "1"},
         {"/etc/ascend_install.info": "File", "/etc/hccn.conf": "File", **TREE}),
        ("A3", {"resourceName": "huawei.com/ascend-1980"}, "huawei.com/ascend-1980", "v0.30.0rc2-a3", {}, {**SMALL, **HCCN}),
    ],
)  # fmt: skip
def test_pods_by_chip(  # noqa: PLR0917 - the columns of a table
    chip: str, changes: dict[str, str], resource: str, image: str, fabric: dict[str, str], mounts: dict[str, str]
) -> None:
    found = pods(specs.deployment(specs.DISAGGREGATED, accelerator={"chip": chip, **changes}))
    for pod in found.values():
        container = engine(pod)
        assert container["resources"]["limits"] == {resource: "8"}
        assert container["resources"]["requests"][resource] == "8"
        assert container["resources"]["requests"]["cpu"] == "40"
        assert container["image"].endswith(f":{image}")
        assert fabric.items() <= env(pod).items()
        assert host_mounts(pod) == mounts


@pytest.mark.parametrize("chip", [chip.name for chip in CHIPS])
def test_what_no_pod_has(chip: str) -> None:
    for pod in pods(specs.deployment(specs.DISAGGREGATED, accelerator={"chip": chip})).values():
        container = engine(pod)
        assert "command" not in container
        assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}  # not privileged
        assert "ASCEND_RT_VISIBLE_DEVICES" not in env(pod)
        assert "memory" not in container["resources"]["limits"]
        assert pod["spec"]["enableServiceLinks"] is False
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert "nodeSelector" not in pod["spec"]
        assert all(
            "OrCreate" not in volume.get("hostPath", {}).get("type", "File") for volume in pod["spec"]["volumes"]
        )


def test_a_unified_engine_hands_nothing_over() -> None:
    pod = pods(specs.deployment(specs.UNIFIED))["unified"]
    assert host_mounts(pod) == SMALL
    assert "securityContext" not in engine(pod)
    assert not {"ASCEND_BASE_PORT", "ASCEND_LOCAL_COMM_RES"} & env(pod).keys()


def test_a_preset_can_be_switched_off() -> None:
    off = {"chip": "A3", "envPreset": "None"}
    pod = pods(specs.deployment(specs.DISAGGREGATED, accelerator=off))["prefill"]
    assert not {"PYTORCH_NPU_ALLOC_CONF", "HCCL_OP_EXPANSION_MODE", "ACL_OP_INIT_MODE"} & env(pod).keys()
    without = {"spec": {"containers": [{"name": "vllm", "resources": {"requests": {"cpu": None}}}]}}
    pod = pods(specs.deployment(specs.DISAGGREGATED, prefill__podTemplate=without))["prefill"]
    assert "cpu" not in engine(pod)["resources"]["requests"]


def test_a_user_variable_replaces_a_preset_in_its_place() -> None:
    ours = pods(specs.deployment(specs.UNIFIED))["unified"]
    body = specs.deployment(specs.UNIFIED, unified__env=[{"name": "HCCL_OP_EXPANSION_MODE", "value": "HOST"}])
    theirs = pods(body)["unified"]
    assert list(env(ours)) == list(env(theirs))
    assert env(theirs)["HCCL_OP_EXPANSION_MODE"] == "HOST"


def test_cluster_facts_come_from_the_operators_configuration() -> None:
    configuration = Configuration.model_validate(
        {
            "imageRepository": "mirror.example/vllm-ascend",
            "chips": {"A3": {"resourceName": "huawei.com/ascend-1980", "interconnect": "RoCE"}},
            "driverMounts": "Host",
            "runtimeClassName": "ascend",
            "schedulerName": "batch",
        }
    )
    pod = pods(specs.deployment(specs.DISAGGREGATED, accelerator={"chip": "A3"}), configuration)["prefill"]
    assert engine(pod)["image"] == "mirror.example/vllm-ascend:v0.30.0rc2-a3"
    assert engine(pod)["resources"]["limits"] == {"huawei.com/ascend-1980": "8"}
    assert env(pod)["HCCL_INTRA_ROCE_ENABLE"] == "1"
    assert TREE.items() <= host_mounts(pod).items()
    assert (pod["spec"]["runtimeClassName"], pod["spec"]["schedulerName"]) == ("ascend", "batch")


@pytest.mark.parametrize(
    ("what", "parallelism", "chip", "size"),
    [
        ("sixteen GiB an NPU", {"tensor": 8, "expert": True}, "950DT", "128Gi"),
        ("a whole A3 node", {"tensor": 16, "expert": True}, "A3", "256Gi"),
        ("two NPUs", {"tensor": 2, "expert": True}, "A3", "32Gi"),
    ],
)
def test_shared_memory(what: str, parallelism: dict[str, Any], chip: str, size: str) -> None:
    pod = pods(specs.deployment(specs.UNIFIED, accelerator={"chip": chip}, unified__parallelism=parallelism))["unified"]
    [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "shm"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": size}, what


@pytest.mark.parametrize(
    ("chip", "parallelism", "nodes", "devices"),
    [
        ("950DT", {"tensor": 8}, 1, "8"),
        ("950DT", {"tensor": 8, "pipeline": 2}, 2, "8"),
        ("950DT", {"data": 2, "tensor": 8}, 2, "8"),
        ("A3", {"tensor": 16, "pipeline": 2}, 2, "16"),
        ("A3", {"data": 32}, 2, "16"),
        ("A3", {"tensor": 2}, 1, "2"),
        ("A2", {"data": 4, "tensor": 8}, 4, "8"),
    ],
)
def test_nodes_of_an_engine(chip: str, parallelism: dict[str, int], nodes: int, devices: str) -> None:
    body = specs.deployment(
        specs.DISAGGREGATED, accelerator={"chip": chip}, decode__parallelism={**parallelism, "expert": True}
    )
    if parallelism.get("pipeline", 1) > 1:  # decode has one stage
        body = specs.deployment(
            specs.DISAGGREGATED, accelerator={"chip": chip}, prefill__parallelism={**parallelism, "expert": True}
        )
    role = "prefill" if parallelism.get("pipeline", 1) > 1 else "decode"
    [workload] = [
        manifest for manifest in wished(specs.planned(body))
        if manifest["metadata"].get("labels", {}).get("serving.kvpp.io/role") == role
        and manifest["kind"] in ("Deployment", "LeaderWorkerSet")
    ]  # fmt: skip
    assert workload["kind"] == ("Deployment" if nodes == 1 else "LeaderWorkerSet")
    if nodes > 1:
        assert workload["spec"]["leaderWorkerTemplate"]["size"] == nodes
    assert set(engine(pods(body)[role])["resources"]["limits"].values()) == {devices}


@pytest.mark.parametrize(
    ("what", "source", "argument", "volume", "variables"),
    [
        ("a claim", {"persistentVolumeClaim": {"claimName": "w", "path": "a/../GLM"}}, "/mnt/model/GLM",
         {"persistentVolumeClaim": {"claimName": "w", "readOnly": True}}, {"HF_HUB_OFFLINE"}),
        ("a host path", {"hostPath": {"path": "/data/GLM"}}, "/data/GLM", {"hostPath": {"path": "/data/GLM", "type": "Directory"}}, {"HF_HUB_OFFLINE"}),
        ("an image", {"image": {"reference": "r/m:1", "path": "w"}}, "/mnt/model/w",
         {"image": {"reference": "r/m:1", "pullPolicy": "IfNotPresent"}}, {"HF_HUB_OFFLINE"}),
        ("Hugging Face", {"huggingFace": {"repo": "o/m", "tokenSecretRef": {"name": "s", "key": "k"}}}, "o/m", {"emptyDir": {}}, {"HF_HOME", "HF_TOKEN"}),
        ("ModelScope", {"modelScope": {"repo": "o/m", "tokenSecretRef": {"name": "s", "key": "k"}}}, "o/m", {"emptyDir": {}},
         {"VLLM_USE_MODELSCOPE", "MODELSCOPE_CACHE", "MODELSCOPE_API_TOKEN"}),
    ],
)  # fmt: skip
def test_sources_of_weights(
    what: str, source: dict[str, Any], argument: str, volume: dict[str, Any], variables: set[str]
) -> None:
    pod = pods(specs.deployment(specs.UNIFIED, model__source=source))["unified"]
    container = engine(pod)
    assert container["args"][2] == argument
    [found] = [one for one in pod["spec"]["volumes"] if one["name"] in ("model", "model-cache")]
    assert {key: value for key, value in found.items() if key != "name"} == volume
    assert variables <= env(pod).keys()
    secrets = [v["valueFrom"]["secretKeyRef"] for v in container["env"] if "secretKeyRef" in v.get("valueFrom", {})]
    assert secrets == ([{"name": "s", "key": "k"}] if "tokenSecretRef" in str(source) else [])
    [mount] = [one for one in container["volumeMounts"] if one["name"] == found["name"]]
    assert bool(mount.get("readOnly")) is (found["name"] == "model")


def test_a_draft_model_is_mounted_where_it_is_needed() -> None:
    draft = {
        "method": "Eagle3",
        "tokens": 2,
        "draftModel": {"persistentVolumeClaim": {"claimName": "drafts", "path": "eagle"}},
    }
    found = pods(
        specs.deployment(
            specs.DISAGGREGATED, engine__version="latest", decode__speculative=draft, prefill__speculative=draft
        )
    )
    for pod in found.values():
        [mount] = [one for one in engine(pod)["volumeMounts"] if one["name"] == "draft"]
        assert (mount["mountPath"], mount["readOnly"]) == ("/mnt/draft", True)


def test_the_api_key_comes_by_environment() -> None:
    pod = pods(specs.deployment(specs.UNIFIED, apiKeySecretRef={"name": "api", "key": "key"}))["unified"]
    container = engine(pod)
    [key] = [variable for variable in container["env"] if variable["name"] == "VLLM_API_KEY"]
    assert key["valueFrom"] == {"secretKeyRef": {"name": "api", "key": "key"}}
    assert "--api-key" not in container["args"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"  # the only path that stays open


def test_prefill_and_decode_keep_apart_on_the_pod_network_only() -> None:
    term = "requiredDuringSchedulingIgnoredDuringExecution"
    found = pods(specs.deployment(specs.DISAGGREGATED))
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        [rule] = found[role]["spec"]["affinity"]["podAntiAffinity"][term]
        assert rule["labelSelector"]["matchLabels"] == {
            "serving.kvpp.io/deployment": "demo",
            "serving.kvpp.io/role": other,
        }
    host = {"hostNetwork": True, "interface": "eth0"}
    assert "affinity" not in pods(specs.deployment(specs.DISAGGREGATED, networking=host))["prefill"]["spec"]
