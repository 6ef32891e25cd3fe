"""A deployment's life on a real API server, with the operator as a process under the chart's rights."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import specs
import yaml
from operator_process import Cluster, Operator, eventually
from projection import differences, projected

from kvpp_devcluster.processes import ProgramError
from kvpp_operator import names
from kvpp_operator.manifest import controller_of
from kvpp_operator.pipeline import wished

pytestmark = pytest.mark.cluster


def named(manifests: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}


def without_owner(manifest: dict[str, Any]) -> dict[str, Any]:
    """Offline there is no uid to refer to."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
    return {**manifest, "metadata": metadata}


ON_ONE_NODE = [file for file in specs.EXAMPLES if "two-node" not in file.stem]


@pytest.mark.parametrize("file", ON_ONE_NODE, ids=lambda file: file.stem)
def test_what_render_prints_is_what_lives(user: Cluster, operator: Operator, file: Any) -> None:
    [body] = specs.read(file)
    body["metadata"]["namespace"] = user.namespace
    user.apply(body)
    user.wait(body["metadata"]["name"], "Ready")
    live = {
        key: without_owner(projected(manifest))
        for key, manifest in named(user.owned(body["metadata"]["name"])).items()
        if (controller_of(manifest) or {}).get("kind")
        == "KVPPDeployment"  # a StatefulSet makes revisions with its pods' labels
    }
    printed = named(json.loads(json.dumps(wished(specs.planned(body)))))
    assert printed.keys() == live.keys()
    for key, manifest in printed.items():
        assert differences(manifest, live[key]) == [], key


def test_a_namespace_goes_within_a_minute(user: Cluster, operator: Operator) -> None:
    """Kubernetes looks again after half of a pod's grace period, 80 s, if one is left 5 s after it was told to end. So engines,
    which need longer than that to end, are told before."""
    [body] = specs.read(specs.EXAMPLES[1])
    slow = {"metadata": {"annotations": {"devcluster.kvpp.io/stop-delay": "6"}}}
    body["spec"]["engine"]["podTemplate"] = slow
    user.apply(body)
    user.wait("glm-5-2-pd", "Ready")
    user.kubectl("delete", "namespace", user.namespace, "--wait=false")
    eventually(lambda: not user.items("pods"), seconds=30, what="nothing runs any more")
    names = user.cluster.kubectl
    eventually(
        lambda: f"namespace/{user.namespace}" not in names("get", "namespaces", "-o", "name").split(), seconds=60
    )
    mine = [line for line in operator.logged() if line.get("deployment", "").startswith(f"{user.namespace}/")]
    assert [line["stopped"] for line in mine if line["message"] == "namespace is being deleted"] == [4]
    assert [line for line in mine if line["message"].startswith("not reconciled")] == []


def test_prefill_and_decode_as_promised(user: Cluster, operator: Operator) -> None:
    [body] = specs.read(specs.EXAMPLES[1])
    user.apply(body)
    user.wait("glm-5-2-pd", "Ready")
    by_role: dict[str, list[list[str]]] = {}
    for pod in user.get("pods")["items"]:
        role = pod["metadata"]["labels"].get(names.ROLE, names.ROUTER)
        by_role.setdefault(role, []).append(pod["spec"]["containers"][0]["args"])
    assert [args[0] for args in by_role.pop(names.ROUTER)] == ["router-agent"] * 2
    flags = {role: dict(zip(args[0], args[0][1:], strict=False)) for role, args in by_role.items()}
    assert json.loads(flags["prefill"]["--additional-config"]) == {"enable_kvpp": True}
    assert "--additional-config" not in flags["decode"]
    transfer = {role: json.loads(found["--kv-transfer-config"]) for role, found in flags.items()}
    assert {role: (found["kv_connector"], found["kv_role"]) for role, found in transfer.items()} == {
        "prefill": ("MooncakeConnectorV2", "kv_producer"), "decode": ("MooncakeConnectorV2", "kv_consumer"),
    }  # fmt: skip
    assert "--enforce-eager" in by_role["prefill"][0]
    assert json.loads(flags["decode"]["--compilation-config"]) == {"cudagraph_mode": "FULL_DECODE_ONLY"}
    blocks = {
        engine["role"]: (engine["kvPort"], engine["kvPortLast"])
        for engine in user.deployment("glm-5-2-pd")["status"]["engines"]
    }
    assert blocks == {"prefill": (22000, 22008), "decode": (22009, 22024)}


def test_a_hand_edit_is_put_back_within_a_second(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.UNIFIED))
    user.wait("demo", "Ready")
    [engine] = user.get("deployments")["items"]
    name = engine["metadata"]["name"]
    user.kubectl("scale", "deployment", name, "--replicas=0")
    eventually(lambda: user.get("deployment", name)["spec"]["replicas"] == 1, seconds=1)
    user.kubectl("delete", "service", "demo-unified")
    eventually(lambda: [s for s in user.get("services")["items"] if s["metadata"]["name"] == "demo-unified"], seconds=1)


def test_an_invalid_edit_leaves_the_engines_and_healing_needs_no_restart(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")
    before = {pod["metadata"]["uid"] for pod in user.get("pods")["items"]}
    # EP on a dense model: only the rules know, the API server takes it.
    dense = {"attention": "MLA", "layers": 61, "moe": False, "kvLoraRank": 512, "ropeHeadDim": 64}
    user.apply(specs.deployment(specs.DISAGGREGATED, model__profile=None, model__architecture=dense))
    refused = user.wait("demo", "Accepted", "False")
    assert "spec.prefill.parallelism.expert" in refused["message"]
    assert user.condition("demo", "Available")["status"] == "True"
    assert {pod["metadata"]["uid"] for pod in user.get("pods")["items"]} == before
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")
    assert {pod["metadata"]["uid"] for pod in user.get("pods")["items"]} == before


@pytest.mark.parametrize(
    ("what", "changes", "path"),
    [
        ("a full graph on prefill", {"prefill__graphMode": "Full"}, "spec.prefill.graphMode"),
        ("a group of one", {"prefill__parallelism": {"data": 8, "expert": True}}, "spec.prefill.parallelism.tensor"),
        ("DCP", {"prefill__parallelism": {"tensor": 8, "decodeContext": 2, "expert": True}}, "spec.prefill.parallelism.decodeContext"),
        ("decode with pipeline stages", {"decode__parallelism": {"tensor": 4, "pipeline": 2}}, "spec.decode.parallelism.pipeline"),
        ("unified beside prefill", {"unified": {"parallelism": {"tensor": 8}}}, "spec"),
        ("no decode", {"decode": None}, "spec"),
        ("a million replicas", {"prefill__replicas": 1_000_000}, "spec.prefill.replicas"),
        ("a size of zero", {"prefill__parallelism": {"tensor": 0}}, "spec.prefill.parallelism.tensor"),
        ("an unknown field", {"prefill__tensorParallel": 8}, "tensorParallel"),
        ("a wrong type", {"prefill__parallelism": {"tensor": "eight"}}, "spec.prefill.parallelism.tensor"),
    ],
)  # fmt: skip
def test_the_api_server_refuses_by_itself(user: Cluster, what: str, changes: dict[str, Any], path: str) -> None:
    """No operator runs here: schema and CEL alone."""
    with pytest.raises(ProgramError, match=path.replace(".", r"\.")):
        user.apply(specs.deployment(specs.DISAGGREGATED, **changes))


@pytest.mark.parametrize(
    ("what", "changes", "rule"),
    [
        ("a GQA model", {"model__profile": "Qwen3-MoE"}, "MODEL"),
        ("a hybrid model", {"model__profile": "GLM-5.3-Flash"}, "MODEL"),
        ("KVPP on decode", {"decode__additionalConfig": {"enable_kvpp": True}}, ""),
        ("dynamic K", {"prefill__extraArgs": ["--speculative-config", '{"method":"mtp","num_speculative_tokens_per_batch_size":[[1,8,3]]}']}, ""),
        ("a name of another planet", {"model__profile": "GLM-9"}, "MODEL"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("operator")
def test_the_operator_refuses_with_the_words_of_validate(
    user: Cluster, kvpp_validate: Any, what: str, changes: dict[str, Any], rule: str
) -> None:
    body = specs.deployment(specs.DISAGGREGATED, **changes)
    user.apply(body)
    refused = user.wait("demo", "Accepted", "False")
    said = [finding for finding in kvpp_validate(body) if finding["severity"] == "error"]
    shown = [finding for finding in user.deployment("demo")["status"]["findings"] if finding["severity"] == "error"]
    assert [(f["rule"], f["path"], f["message"], f["fix"], f["source"]) for f in said] == [
        (f["rule"], f["path"], f["message"], f["fix"], f["source"]) for f in shown
    ]
    assert said
    assert all(finding["message"] in refused["message"] for finding in said)
    assert user.get("pods")["items"] == []


def test_deleting_leaves_nothing_and_the_users_object_carries_nothing_of_ours(
    user: Cluster, operator: Operator
) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")
    metadata = user.deployment("demo")["metadata"]
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
    assert "labels" not in metadata
    managers = {
        entry["manager"]: entry
        for entry in user.get("kvpp", "demo", "--show-managed-fields")["metadata"]["managedFields"]
    }
    assert managers["kvpp-operator"]["subresource"] == "status"
    user.kubectl("delete", "kvpp", "demo")
    eventually(lambda: not user.owned("demo") and not user.get("pods")["items"])


def test_a_foreign_object_is_left_alone_and_named(user: Cluster, operator: Operator) -> None:
    user.kubectl("create", "service", "clusterip", "demo-unified", "--tcp=1234:1234")
    user.apply(specs.deployment(specs.UNIFIED))
    refused = user.wait("demo", "Applied", "False")
    assert (refused["reason"], "demo-unified" in refused["message"]) == ("ForeignObject", True)
    assert user.get("service", "demo-unified")["spec"]["ports"][0]["port"] == 1234
    user.kubectl("delete", "service", "demo-unified")
    user.wait("demo", "Applied")


def test_a_new_revision_replaces_the_old_one(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.UNIFIED))
    user.wait("demo", "Ready")
    before = {d["metadata"]["name"] for d in user.get("deployments")["items"]}
    user.apply(specs.deployment(specs.UNIFIED, model__maxModelLen=4096))
    user.wait("demo", "Ready")
    after = {d["metadata"]["name"] for d in user.get("deployments")["items"]}
    assert (len(after), before & after) == (1, set())


def test_a_cold_start_writes_nothing(user: Cluster, operator: Operator) -> None:
    """The operator restarted over settled deployments: zero writes, by the objects' own versions."""
    user.apply(specs.deployment(specs.DISAGGREGATED))
    user.wait("demo", "Ready")

    def versions() -> dict[tuple[str, str], str]:
        return {
            k: m["metadata"]["resourceVersion"]
            for k, m in named([*user.owned("demo"), user.deployment("demo")]).items()
        }

    def unchanged_for_a_while() -> dict[tuple[str, str], str] | None:
        first = versions()
        time.sleep(0.5)
        return first if first == versions() else None

    settled = eventually(unchanged_for_a_while)
    assert operator.stop() == 0
    operator.start()
    time.sleep(1)
    assert versions() == settled


@pytest.mark.parametrize("name", ["d", "a" * 40, "b" * 52, "c" * 63, "e" * 50 + "-one", "e" * 50 + "-two", "3b-model"])
def test_names_of_every_length_work(user: Cluster, operator: Operator, name: str) -> None:
    user.apply(specs.deployment(specs.UNIFIED, name=name))
    user.wait(name, "Ready")


def test_any_unicode_comes_through(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.UNIFIED, model__servedName='模型 ‘GLM’ $(POD_IP) \\ "x"\t🚀'))
    user.wait("demo", "Ready")
    assert user.deployment("demo")["status"]["model"] == '模型 ‘GLM’ $(POD_IP) \\ "x"\t🚀'


def test_a_deployment_near_the_size_limit(user: Cluster, operator: Operator) -> None:
    env = [{"name": f"V{index}", "value": "x" * 1000} for index in range(200)]
    body = specs.deployment(specs.UNIFIED, unified__env=env)
    user.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump({**body, "metadata": {"name": "demo"}}))
    user.wait("demo", "Ready")


def test_one_broken_deployment_does_not_hold_up_another(user: Cluster, operator: Operator) -> None:
    user.apply(specs.deployment(specs.DISAGGREGATED, name="broken", model__profile="GLM-9"))
    user.apply(specs.deployment(specs.UNIFIED, name="fine"))
    user.wait("fine", "Ready")
    user.wait("broken", "Accepted", "False")
