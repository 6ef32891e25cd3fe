"""What runs is read off the objects: argv and environment say which ports, labels say whose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvpp_operator import names
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Owner
from kvpp_operator.ledger.live import OWNER_UID, holder_of, live_claims, with_uids
from kvpp_operator.ports import PortRange

OWNER = Owner("team", "demo", "u1")
HOLDER = Holder(OWNER, "prefill", 1, "abc")
LABELS = {names.DEPLOYMENT: "demo", names.ROLE: "prefill", names.ENGINE: "1", names.REVISION: "abc"}
V2 = {"kv_connector": "MooncakeConnectorV2", "kv_role": "kv_producer", "kv_port": 22100}
BOTH = {(KV, "22100-22116"), (HOST, "17001-17019")}


def pod_spec(
    *, config: Any = V2, host: bool = True, port: str | None = "17019", base: str | None = "17001"
) -> dict[str, Any]:
    args = ["serve", "/model", "--tensor-parallel-size", "8", "--pipeline-parallel-size=2"]
    args += ["--kv-transfer-config", json.dumps(config)] if config else []
    args += ["--port", port] if port else []
    env = [{"name": "HCCL_IF_BASE_PORT", "value": base}] if base else []
    engine = {"name": names.CONTAINER, "args": args, "env": env}
    return {"hostNetwork": host, "containers": [{"name": "sidecar", "args": ["--port", "1"]}, engine]}


def metadata(*, owned: bool = True) -> dict[str, Any]:
    references = [{"kind": "KVPPDeployment", "uid": "u1"}] if owned else [{"kind": "ReplicaSet", "uid": "other"}]
    return {"namespace": "team", "name": "x", "labels": LABELS, "ownerReferences": references}


def deployment(spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "Deployment", "metadata": metadata(), "spec": {"template": {"spec": spec}}}


def group(head: dict[str, Any], worker: dict[str, Any]) -> dict[str, Any]:
    templates = {"leaderTemplate": {"spec": head}, "workerTemplate": {"spec": worker}}
    return {"kind": "LeaderWorkerSet", "metadata": metadata(), "spec": {"leaderWorkerTemplate": templates}}


def shown(*manifests: dict[str, Any]) -> set[tuple[str, str]]:
    claims = live_claims(manifests)
    assert {claim.holder for claim in claims} <= {HOLDER}
    return {(claim.purpose, str(claim.block)) for claim in claims}


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (deployment(pod_spec()), BOTH),
        (group(pod_spec(), pod_spec(port=None)), BOTH),
        (deployment(pod_spec(config={"kv_connector_extra_config": {"connectors": [{"kv_port": "22100"}, {}]}})), BOTH),
        (deployment(pod_spec(config=None)), {(HOST, "17001-17019")}),
        (deployment(pod_spec(host=False)), set()),
        (deployment(pod_spec(port="8000")), {(KV, "22100-22116")}),
        (deployment(pod_spec(config={"kv_port": 65530}, base=None)), set()),
        (deployment(pod_spec(config={"kv_port": "many"}, base="x")), set()),
        (deployment({"hostNetwork": True, "containers": "none"}), set()),
        (deployment({"hostNetwork": True, "containers": [None, {"name": names.CONTAINER}]}), set()),
        ({"kind": "Deployment", "metadata": metadata(), "spec": None}, set()),
        ({"kind": "Deployment", "metadata": {"labels": None}, "spec": {"template": {"spec": pod_spec()}}}, set()),
        ({}, set()),
    ],
)
def test_workloads(manifest: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    assert expected == shown(manifest)


def test_a_pod_says_what_its_workload_says_once() -> None:
    pod = {"kind": "Pod", "metadata": metadata(owned=False) | {"annotations": {OWNER_UID: "u1"}}, "spec": pod_spec()}
    assert shown(deployment(pod_spec()), pod) == BOTH
    assert len(live_claims([deployment(pod_spec()), pod])) == 2


def test_a_pod_without_the_annotation_is_recognised_by_its_block() -> None:
    pod = {"kind": "Pod", "metadata": metadata(owned=False), "spec": pod_spec()}
    claims = live_claims([pod])
    assert {claim.holder.owner.uid for claim in claims} == {""}
    known = [Claim(PortRange(22100, 22116), HOLDER, KV)]
    assert [claim.holder.owner.uid for claim in with_uids(claims, known)] == ["", "u1"]


@pytest.mark.parametrize("index", [None, "", "x", "-1", "²"])
def test_an_object_without_our_labels_is_nobodys(index: str | None) -> None:
    assert holder_of({"metadata": {"labels": LABELS | {names.ENGINE: index}}}) is None
