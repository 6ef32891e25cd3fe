"""The host network: engines of two deployments share hosts, and no port of theirs meets another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e.place import MODELS, SIMULATED, WEIGHTS, merged
from e2e.sockets import listening, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.place import Json, Place

NAMES = ("one", "two")
HOSTS = ("host-1", "host-2")
TENSOR, DATA = 2, 2
WINDOW = (22000, 29999)
ENGINES = "serving.kvpp.io/role"
PREFILL = f"{ENGINES}=prefill"


def deployment(name: str) -> Json:
    """Two prefill and two decode engines of two NPUs each, one of each role on either host."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": "Honor",
    }

    def role(role_name: str) -> Json:
        labels = {"serving.kvpp.io/deployment": name, "serving.kvpp.io/role": role_name}
        apart = {**spread, "labelSelector": {"matchLabels": labels}}
        return {"replicas": 2, "podTemplate": {"spec": {"topologySpreadConstraints": [apart]}}}

    spec: Json = {
        "model": {
            "profile": "GLM-5.2",
            "source": {"hostPath": {"path": str(MODELS / WEIGHTS[0])}},
            "quantization": "ascend",
        },
        "engine": {"version": "0.30.0rc2", "podTemplate": {"spec": {"nodeSelector": {"hosts": "shared"}}}},
        "accelerator": {"chip": "950DT"},
        "networking": {"hostNetwork": True, "interface": "eth0"},
        "prefill": {**role("prefill"), "parallelism": {"tensor": TENSOR, "expert": True}, "graphMode": "Eager"},
        "decode": {**role("decode"), "parallelism": {"data": DATA, "expert": True}, "graphMode": "FullDecodeOnly"},
    }
    return {
        "apiVersion": "serving.kvpp.io/v1alpha1",
        "kind": "KVPPDeployment",
        "metadata": {"name": name},
        "spec": merged(spec, SIMULATED),
    }


@pytest.fixture(scope="module")
def shared(operated: Place) -> Iterator[str]:
    """Give a namespace in which both deployments are Ready on the same two hosts."""
    operated.cluster.kubectl("label", "node", *HOSTS, "hosts=shared")
    with operated.namespace("host-network") as namespace:
        operated.apply(*map(deployment, NAMES), namespace=namespace)
        for name in NAMES:
            operated.until_ready(namespace, name, seconds=180)
        yield namespace
    operated.cluster.kubectl("label", "node", *HOSTS, "hosts-")


def test_four_engines_of_two_deployments_run_on_either_host(operated: Place, shared: str) -> None:
    found = sorted(
        (pod["spec"]["nodeName"], pod["metadata"]["labels"]["serving.kvpp.io/deployment"],
         pod["metadata"]["labels"]["serving.kvpp.io/role"])
        for pod in operated.pods(shared, ENGINES)
    )  # fmt: skip
    assert found == [(host, name, role) for host in HOSTS for name in NAMES for role in ("decode", "prefill")]


def test_every_socket_is_bound_where_the_status_says(operated: Place, shared: str) -> None:
    """A prefill engine's block is N rank numbers that nobody binds and then one control port for each DP replica; a
    decode engine binds none of its block. So in the whole window exactly the control ports listen.
    """
    wanted: dict[str, set[int]] = {host: set() for host in HOSTS}
    for name in NAMES:
        for engine in operated.deployment(shared, name)["status"]["engines"]:
            if engine["role"] == "prefill":
                (host,) = engine["nodes"]
                wanted[host].add(engine["kvPort"] + TENSOR)
    declared = {host: set[int]() for host in HOSTS}
    for pod in operated.pods(shared, ENGINES):
        (container,) = pod["spec"]["containers"]
        declared[pod["spec"]["nodeName"]] |= {port["hostPort"] for port in container["ports"] if port["name"] == "http"}
    for host in operated.cluster.hosts[: len(HOSTS)]:
        bound = listening(host)
        assert within(bound, *WINDOW) == sorted(wanted[host.plan.name])
        assert declared[host.plan.name] <= bound
        operated.say(
            f"{host.plan.name}: control ports {sorted(wanted[host.plan.name])} and APIs {sorted(declared[host.plan.name])} listen"
        )


def test_a_pod_on_ports_of_an_engine_fails(operated: Place, shared: str) -> None:
    """The same command line once more, past the ledger and without the declared ports that the scheduler would look at."""
    engine = operated.pods(shared, PREFILL)[0]
    (container,) = engine["spec"]["containers"]
    again = {key: container[key] for key in ("name", "image", "args", "env", "volumeMounts")}
    kept = ("hostNetwork", "nodeName", "volumes")
    spec = {**{key: engine["spec"][key] for key in kept}, "restartPolicy": "Never", "containers": [again]}
    spec["volumes"] = [volume for volume in spec["volumes"] if "projected" not in volume]
    operated.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "collision"}, "spec": spec}, namespace=shared
    )
    operated.until("the colliding pod has failed", lambda: _phase(operated, shared) == "Failed", seconds=60)
    assert "Address already in use" in operated.cluster.kubectl("logs", "collision", "-n", shared)


def test_the_scheduler_keeps_a_second_pod_off_a_declared_port(operated: Place, shared: str) -> None:
    engine = operated.pods(shared, PREFILL)[0]
    (container,) = engine["spec"]["containers"]
    again = {key: container[key] for key in ("name", "image", "ports")}
    spec = {"hostNetwork": True, "nodeSelector": {"hosts": "shared", "kubernetes.io/hostname": engine["spec"]["nodeName"]},
            "containers": [again]}  # fmt: skip
    operated.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}, "spec": spec}, namespace=shared)

    def refused() -> bool:
        conditions = operated.get("pod", "second", namespace=shared)["status"].get("conditions", [])
        return any("didn't have free ports" in one.get("message", "") for one in conditions)

    operated.until("the scheduler has refused a second pod on the ports", refused, seconds=30)
    operated.cluster.kubectl("delete", "pod", "second", "-n", shared, "--grace-period=0", "--force")


def _phase(place: Place, namespace: str) -> str:
    phase: str = place.get("pod", "collision", namespace=namespace)["status"].get("phase", "")
    return phase
