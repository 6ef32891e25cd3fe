"""What runs is read off the objects: argv and environment say which ports, labels say whose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvpp_operator import names
from kvpp_operator.ledger.claim import HOST, KV, Claim, Holder, Ledger, Owner
from kvpp_operator.ledger.live import holder_of, holders, live_claims, signs, with_uids
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


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": metadata(owned=False), "spec": spec}


def test_a_pod_is_recognised_by_its_block() -> None:
    claims = live_claims([pod(pod_spec())])
    assert {claim.holder.owner.uid for claim in claims} == {""}
    known = [Claim(PortRange(22100, 22116), HOLDER, KV)]
    assert [claim.holder.owner.uid for claim in with_uids(claims, known)] == ["", "u1"]


OLD = HOLDER._replace(owner=OWNER._replace(uid="u0"))
NAMESAKES = Ledger((
    Claim(PortRange(17001, 17019), OLD, HOST), Claim(PortRange(22000, 22016), OLD, KV),
    Claim(PortRange(17020, 17038), HOLDER, HOST), Claim(PortRange(22100, 22116), HOLDER, KV),
))  # fmt: skip


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([17019], {OLD}),  # the API port, last of the host block
        ([17038], {HOLDER}),
        ([17038, 22116], {HOLDER}),
        # A worker of a decode engine names no port: it may be of either.
        ([], {HOLDER.without_uid}),
        ([9999], {HOLDER.without_uid}),
    ],
)
def test_a_port_tells_namesakes_apart(ports: list[int], expected: set[Holder]) -> None:
    """Else the claims of a deleted deployment would stay for as long as its successor's engines run."""
    container = {"name": names.CONTAINER, "ports": [{"containerPort": port} for port in ports]}
    found = signs([pod({"hostNetwork": True, "containers": [container]})])
    assert holders(found, NAMESAKES) == expected


def test_a_pod_with_an_address_of_its_own_says_nothing_of_hosts() -> None:
    container = {"name": names.CONTAINER, "ports": [{"containerPort": 17019}]}
    assert holders(signs([pod({"containers": [container]})]), NAMESAKES) == {HOLDER.without_uid}


def test_a_workload_knows_its_deployment() -> None:
    assert holders(signs([deployment(pod_spec()), {"kind": "Service", "metadata": {}}]), NAMESAKES) == {HOLDER}


@pytest.mark.parametrize("index", [None, "", "x", "-1", "²"])
def test_an_object_without_our_labels_is_nobodys(index: str | None) -> None:
    assert holder_of({"metadata": {"labels": LABELS | {names.ENGINE: index}}}) is None
