"""The Job that a node gets: the engine's pod, looking instead of serving."""

from __future__ import annotations

import json
from typing import Any

import specs

from kvpp_operator.pipeline import wished
from kvpp_operator.preflight.job import MOUNT, Target, job, needs, targets

ROLES = {"prefill": "huawei.com/npu", "decode": "huawei.com/npu"}


def target(role: str = "prefill", **changes: Any) -> Target:
    made = targets(wished(specs.planned(specs.deployment(specs.DISAGGREGATED, **changes))), ROLES)
    return next(one for one in made if one.role == role)


def pod(**changes: Any) -> dict[str, Any]:
    made = job(target(**changes), "n1", "r1", npus=1, seconds=60)
    found: dict[str, Any] = made["spec"]["template"]["spec"]
    return found


def test_one_for_each_role_with_engines() -> None:
    assert [one.role for one in targets(wished(specs.planned(specs.deployment(specs.DISAGGREGATED))), ROLES)] == [
        "decode",
        "prefill",
    ]
    none = specs.deployment(specs.DISAGGREGATED, decode__replicas=0)
    assert [one.role for one in targets(wished(specs.planned(none)), ROLES)] == ["prefill"]
    two_nodes = specs.deployment(specs.UNIFIED, unified__parallelism={"tensor": 8, "pipeline": 2, "expert": True})
    assert [one.role for one in targets(wished(specs.planned(two_nodes)), {"unified": "huawei.com/npu"})] == ["unified"]


def test_what_the_engine_needs_is_told() -> None:
    assert needs(target(prefill__sharedMemory="8Gi"), 1) == {
        "npus": 1, "shm": 8 * 2**30, "hugepages": 0, "cpus": 40, "transfer": True, "files": ["/mnt/models/GLM-5.2/config.json"],
    }  # fmt: skip


def test_cpus_are_a_quantity() -> None:
    fewer = {"spec": {"containers": [{"name": "vllm", "resources": {"requests": {"cpu": "1500m"}}}]}}
    assert needs(target(prefill__podTemplate=fewer), 1)["cpus"] == 2


def test_the_engines_image_and_volumes_in_exec_form_and_no_secrets() -> None:
    secret: dict[str, Any] = {"apiKeySecretRef": {"name": "keys", "key": "api"}}
    made = pod(**secret)
    [container] = made["containers"]
    engine = target(**secret).container
    assert (container["image"], "command" in container) == (engine["image"], False)
    assert container["args"][:2] == ["python3", f"{MOUNT}/probe.py"]
    assert json.loads(container["args"][3])["transfer"] is True
    assert "secretKeyRef" in json.dumps(engine["env"])
    assert "secretKeyRef" not in json.dumps(container["env"])
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert {"/etc/hccn.conf": True, MOUNT: True}.items() <= mounts.items()
    assert [path for path, read_only in mounts.items() if not read_only] == ["/dev/shm"]
    assert "initContainers" not in made
    assert not {"ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & container.keys()


def test_one_npu_on_one_node_and_none_if_asked_so() -> None:
    made = pod()
    term = made["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert made["containers"][0]["resources"]["limits"] == {"huawei.com/npu": "1"}
    without = job(target(), "n1", "r1", npus=0, seconds=60)["spec"]["template"]["spec"]
    assert without["containers"][0]["resources"]["limits"] == {}


def test_no_label_of_an_engine_so_that_no_service_sends_it_requests() -> None:
    made = job(target(), "n1", "r1", npus=1, seconds=60)
    assert made["spec"]["template"]["metadata"]["labels"] == {"serving.kvpp.io/preflight": "r1"}
    assert len(made["metadata"]["name"]) <= 63
