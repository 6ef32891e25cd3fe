"""What a node binds, and that a second one can't: the sockets are real, so port claims can be proved by them."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from kvpp_engine_simulator.arguments import Parallel
from kvpp_engine_simulator.local import LOOPBACK, LocalEngine, decode, free_ports, is_free, prefill
from kvpp_engine_simulator.refusal import prepare
from kvpp_engine_simulator.rendezvous import RendezvousError


async def test_a_producer_binds_one_control_port_a_replica() -> None:
    kv_port = free_ports(8 * 2 + 2)
    async with LocalEngine(prefill(kv_port, "--data-parallel-size", "2")) as engine:
        assert [port for port in range(kv_port, kv_port + 18) if not is_free(port)] == [kv_port + 16, kv_port + 17]
        assert not is_free(engine.port)


async def test_a_consumer_binds_none() -> None:
    kv_port = free_ports(2)
    async with LocalEngine(decode(kv_port)):
        assert is_free(kv_port)
        assert is_free(kv_port + 1)


async def test_hccl_ports_are_bound_where_they_are_told() -> None:
    first = free_ports(8)
    arguments = ["/weights/GLM-5.2", "--tensor-parallel-size", "8"]
    async with LocalEngine(arguments, {"HCCL_IF_BASE_PORT": str(first)}):
        assert not any(is_free(port) for port in range(first, first + 8))


@pytest.mark.parametrize("shared", ["api", "control", "hccl"])
async def test_two_engines_on_one_port(shared: str) -> None:
    kv_ports, hccl, api = free_ports(40), free_ports(17), free_ports(2)
    first = LocalEngine(prefill(kv_ports), {"HCCL_IF_BASE_PORT": str(hccl)}, port=api)
    second = LocalEngine(
        prefill(kv_ports if shared == "control" else kv_ports + 20),
        {"HCCL_IF_BASE_PORT": str(hccl if shared == "hccl" else hccl + 8)},
        port=api if shared == "api" else api + 1,
    )
    async with first:
        with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
            await second.__aenter__()


TWO_NODES = ("--pipeline-parallel-size", "2", "--distributed-executor-backend", "mp", "--nnodes", "2")


def rank(number: int, master: int, *more: str) -> list[str]:
    place = ("--node-rank", str(number), "--master-addr", LOOPBACK, "--master-port", str(master))
    return ["/weights/GLM-5.2", "--tensor-parallel-size", "8", *TWO_NODES, *place, *more]


async def test_two_ranks_find_each_other() -> None:
    master = free_ports()
    head, worker = LocalEngine(rank(0, master)), LocalEngine(rank(1, master, "--headless"))
    await asyncio.gather(head.__aenter__(), worker.__aenter__())
    assert not is_free(head.port)
    assert is_free(worker.port)  # a headless rank serves no HTTP
    await head.stop()
    with pytest.raises(Exception, match="the head is gone"):
        await worker.ended()


async def test_a_lost_rank_ends_the_engine() -> None:
    master = free_ports()
    head, worker = LocalEngine(rank(0, master)), LocalEngine(rank(1, master, "--headless"))
    await asyncio.gather(head.__aenter__(), worker.__aenter__())
    await worker.__aexit__()
    with pytest.raises(Exception, match="worker of node rank 1 died unexpectedly"):
        await head.ended()


async def test_a_head_that_waits_in_vain_says_for_whom() -> None:
    head = LocalEngine(rank(0, free_ports()), {"VLLM_ENGINE_READY_TIMEOUT_S": "0.2"})
    with pytest.raises(RendezvousError, match=r"waiting for node ranks \[1\]"):
        await head.__aenter__()


async def test_ranks_with_other_arguments_are_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    master = free_ports()
    short = {"VLLM_ENGINE_READY_TIMEOUT_S": "1"}
    head = LocalEngine(rank(0, master), short)
    worker = LocalEngine(rank(1, master, "--headless", "--max-num-seqs", "4"), short)
    results = await asyncio.gather(head.__aenter__(), worker.__aenter__(), return_exceptions=True)
    assert [type(result) for result in results] == [RendezvousError, RendezvousError]
    assert "was started with other arguments" in caplog.text


async def test_data_parallel_over_nodes_binds_the_rpc_port_and_control_ports_where_replicas_start() -> None:
    master, rpc, kv_port = free_ports(), free_ports(), free_ports(18)
    transfer = {"kv_connector": "MooncakeConnectorV2", "kv_role": "kv_producer", "kv_port": kv_port}
    both = [
        *(
            "--data-parallel-size",
            "2",
            "--data-parallel-rpc-port",
            str(rpc),
            "--kv-transfer-config",
            json.dumps(transfer),
        ),
        *("--nnodes", "2", "--tensor-parallel-size", "8", "--enforce-eager"),
    ]

    def node(number: int, *more: str) -> LocalEngine:
        place = ("--node-rank", str(number), "--master-addr", LOOPBACK, "--master-port", str(master))
        return LocalEngine(["/weights/GLM-5.2", *both, *place, *more])

    head, worker = node(0), node(1, "--headless")
    await asyncio.gather(head.__aenter__(), worker.__aenter__())
    try:
        assert [port - kv_port for port in range(kv_port, kv_port + 18) if not is_free(port)] == [16, 17]
        assert not is_free(rpc)
    finally:
        await head.__aexit__()
        await worker.__aexit__()


@pytest.mark.parametrize(
    ("parallel", "starts"),
    [
        (Parallel(tensor=8), [[0]]),
        (Parallel(tensor=8, pipeline=2, nodes=2), [[0], []]),
        (Parallel(tensor=8, data=2, nodes=2), [[0], [1]]),
        (Parallel(tensor=1, data=16, nodes=2), [list(range(8)), list(range(8, 16))]),
        (Parallel(tensor=8, pipeline=2, data=2, nodes=4), [[0], [], [1], []]),
    ],
)
def test_replicas_start_on_the_node_of_their_first_rank(parallel: Parallel, starts: list[list[int]]) -> None:
    nodes = [Parallel(**{**vars(parallel), "node_rank": number}) for number in range(parallel.nodes)]
    assert [list(node.replicas_that_start_here()) for node in nodes] == starts


async def test_the_api_port_is_taken_before_it_answers() -> None:
    """vLLM binds first and listens late: a connection is refused, and so is a second engine that listens."""
    engine = LocalEngine(["/weights/GLM-5.2"], {"SIMULATOR_FAULT": "hang-loading"})
    node = engine.create()
    running = asyncio.create_task(node.run())
    try:
        async with asyncio.timeout(5):
            while is_free(engine.port):  # noqa: ASYNC110 - the engine says nothing at this moment
                await asyncio.sleep(0.01)
        with socket.socket() as probe:
            assert probe.connect_ex((LOOPBACK, engine.port)) != 0
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_control_port_is_counted_behind_all_ranks() -> None:
    engine, _ = prepare(prefill(22000, "--data-parallel-size", "4"), {})
    assert engine.handover is not None
    assert engine.control_ports(engine.handover) == {0: 22032, 1: 22033, 2: 22034, 3: 22035}
