"""What each engine asks of the ledger, and which ports it gets from what was given."""

from __future__ import annotations

from typing import Any

import pytest
import specs

from kvpp_operator.api.v1alpha1 import KVPPDeployment
from kvpp_operator.catalogue import chips
from kvpp_operator.configuration import Configuration
from kvpp_operator.engine_ports import claimed_plan, local_services, requests
from kvpp_operator.ledger.allocate import Allocation, allocate
from kvpp_operator.ledger.claim import Ledger
from kvpp_operator.plan.pool import MemcachePlan, plan_pool
from kvpp_operator.ports import RESERVED, transport_range
from kvpp_operator.resolve import Resolved, resolve


def resolved(spec: dict[str, Any] = specs.DISAGGREGATED, **changes: Any) -> Resolved:
    return resolve(KVPPDeployment.model_validate(specs.deployment(spec, **changes)), Configuration())


def lengths(deployment: Resolved) -> dict[str, int]:
    return {f"{r.holder.role} {r.holder.engine} {r.purpose}": r.length for r in requests(deployment, "r1")}


@pytest.mark.parametrize(
    ("spec", "changes", "expected"),
    [
        (specs.DISAGGREGATED, {"prefill__replicas": 2, "decode__replicas": 0},
         {"prefill 0 kv": 9, "prefill 0 host": 19, "prefill 1 kv": 9, "prefill 1 host": 19}),
        (specs.DISAGGREGATED, {"prefill__parallelism": {"tensor": 8, "pipeline": 2}, "decode__parallelism": {"tensor": 1}},
         {"prefill 0 kv": 17, "prefill 0 host": 19, "decode 0 kv": 2, "decode 0 host": 19}),
        # Nobody fetches KV from a unified engine.
        (specs.UNIFIED, {}, {"unified 0 host": 19}),
        (specs.UNIFIED, {"accelerator__devicesPerNode": 64}, {"unified 0 host": 67}),
        (specs.DISAGGREGATED, {"pooling": {"backend": "Memcache", "memcache": {"protocol": "HostTcp", "memoryPerDevice": "64Gi"}}},
         {"prefill 0 kv": 9, "prefill 0 host": 27, "decode 0 kv": 16, "decode 0 host": 19}),
    ],
)  # fmt: skip
def test_blocks_that_an_engine_needs(spec: dict[str, Any], changes: dict[str, Any], expected: dict[str, int]) -> None:
    assert expected == lengths(resolved(spec, **changes))


def test_every_port_that_is_given_is_in_the_engines_own_blocks_and_out_of_everybodys_ranges() -> None:
    deployment = resolved(
        prefill__replicas=3,
        pooling={"backend": "Memcache", "memcache": {"protocol": "HostTcp", "memoryPerDevice": "64Gi"}},
    )
    answer = allocate(Ledger(), requests(deployment, "r1"))
    assert isinstance(answer, Allocation)
    plan = claimed_plan(deployment, answer.claims)
    assert plan.ports.keys() == {("prefill", 0), ("prefill", 1), ("prefill", 2), ("decode", 0)}
    told = [(engine, number) for engine, ports in plan.ports.items() for number in ports.numbers.values()]
    owners = {
        number: claim.holder for claim in answer.claims for number in range(claim.block.first, claim.block.last + 1)
    }
    assert [(owners[number].role, owners[number].engine) for _, number in told] == [engine for engine, _ in told]
    forbidden = (transport_range(8), *(row.block for row in RESERVED))
    assert [number for number in owners if any(number in block for block in forbidden)] == []


@pytest.mark.parametrize("chip", sorted(chips.BY_NAME))
@pytest.mark.parametrize("protocol", [None, "HostTcp", "HostShm", "DeviceRdma"])
def test_the_pools_plan_and_the_ports_agree_on_the_protocol(chip: str, protocol: str | None) -> None:
    memcache = {"memoryPerDevice": "64Gi", **({"protocol": protocol} if protocol else {})}
    for interconnect in ("HCCS", "RoCE", "UB", "UBoE"):
        deployment = resolved(
            accelerator={"chip": chip, "interconnect": interconnect},
            pooling={"backend": "Memcache", "memcache": memcache},
        )
        pool = plan_pool(deployment, "image:tag")
        assert pool is not None
        assert isinstance(pool.backend, MemcachePlan)
        listens = pool.backend.protocol in ("HostRdma", "HostTcp", "HostUrma")
        assert bool(local_services(deployment, deployment.roles[0])) == listens
