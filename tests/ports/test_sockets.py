"""Fifty deployments on one host, with real sockets: every engine binds what it is told, none finds a port taken."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import specs
import yaml
from click.testing import CliRunner
from kvpp_engine_simulator.launch import Node
from kvpp_engine_simulator.local import LOOPBACK, QUICK
from kvpp_engine_simulator.refusal import prepare

from kvpp_operator.cli.app import app
from kvpp_operator.ledger.window import host_windows

DEPLOYMENTS = 50
LAYOUTS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"replicas": 2, "parallelism": {"tensor": 2, "expert": True}}, {"parallelism": {"tensor": 1}}),
    ({"parallelism": {"tensor": 8, "expert": True}}, {"parallelism": {"data": 8, "expert": True}}),
    ({"parallelism": {"tensor": 2, "data": 4, "expert": True}}, {"replicas": 2, "parallelism": {"tensor": 4}}),
    ({"parallelism": {"tensor": 2, "pipeline": 2, "expert": True}}, {"parallelism": {"data": 2, "tensor": 2, "expert": True}}),
)  # fmt: skip
"""Prefill and decode; each engine on one node, so that all of them could be on this host."""


@dataclass(frozen=True)
class Engine:
    """One process as `kvpp commands` gives it."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]

    def flag(self, name: str, default: str = "") -> str:
        return self.argv[self.argv.index(name) + 1] if name in self.argv else default

    def told(self) -> list[int]:
        """What MooncakeConnectorV2 and vLLM bind of the ports they are told (vllm-ascend 0.30.0rc2, base_scheduler.py)."""
        data, pipeline, tensor = (
            int(self.flag(f"--{kind}-parallel-size", "1")) for kind in ("data", "pipeline", "tensor")
        )
        transfer = json.loads(self.flag("--kv-transfer-config"))
        control = transfer["kv_port"] + data * pipeline * tensor
        producer = transfer["kv_role"] == "kv_producer"
        rpc = [int(self.flag("--data-parallel-rpc-port"))] if "--data-parallel-rpc-port" in self.argv else []
        hccl = int(self.env["HCCL_IF_BASE_PORT"])
        return [
            int(self.flag("--port")), *rpc, *(range(control, control + data) if producer else ()),
            *range(hccl, hccl + 16),
        ]  # fmt: skip


def taken_ports() -> list[int]:
    """Ports that something else on this machine listens on; a user would list them as reserved."""
    ranges = [range(22000, 30000), *(range(place.first, place.last + 1) for place in host_windows(8))]
    return sorted({port for ports in ranges for port in ports if not can_bind(port)})


def can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> list[Engine]:
    folder: Path = tmp_path_factory.mktemp("sockets")
    (folder / "config.yaml").write_text(yaml.safe_dump({"reservedPorts": taken_ports()}), "utf-8")
    host = {"networking": {"hostNetwork": True, "interface": "lo"}}
    bodies = []
    for index in range(DEPLOYMENTS):
        prefill, decode = LAYOUTS[index % len(LAYOUTS)]
        bodies.append(
            specs.deployment({**specs.DISAGGREGATED, "prefill": prefill, "decode": decode}, name=f"d{index}", **host)
        )
    command = ["commands", "-o", "json", "--config", str(folder / "config.yaml"), "-"]
    result = CliRunner().invoke(app, command, input=yaml.safe_dump_all(bodies))
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    found = [
        Engine(f"{line['name']} {line['role']} {line['engine']}", tuple(line["argv"]), line["env"]) for line in lines
    ]
    assert len(found) == sum(2 + (index % 4 in (0, 2)) for index in range(DEPLOYMENTS))
    return found


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def bound(engine: Engine) -> Iterator[None]:
    """Hold every port that the engine is told to bind. OSError names the first that is taken."""
    with ExitStack() as stack:
        for port in engine.told():
            listening = stack.enter_context(socket.socket())
            try:
                listening.bind(("", port))
            except OSError as error:
                raise OSError(error.errno, f"{engine.name}: {port} is taken") from None
            listening.listen()
        yield


def test_every_engine_binds_what_it_is_told(engines: list[Engine]) -> None:
    with ExitStack() as stack:
        for engine in engines:
            stack.enter_context(bound(engine))


def at(engine: Engine, kv_port: int) -> Engine:
    """The same engine with another kv port."""
    place = engine.argv.index("--kv-transfer-config") + 1
    transfer = {**json.loads(engine.argv[place]), "kv_port": kv_port}
    return replace(engine, argv=(*engine.argv[:place], json.dumps(transfer), *engine.argv[place + 1 :]))


def test_blocks_without_room_for_control_ports_fail(engines: list[Engine]) -> None:
    """The negative control: blocks of N numbers, as if nobody bound the one behind them."""
    first = next(
        engine for engine in engines if "prefill" in engine.name and engine.flag("--tensor-parallel-size") == "8"
    )
    other = next(engine for engine in engines if engine.name == "d0 prefill 0")
    numbers = json.loads(first.flag("--kv-transfer-config"))["kv_port"]
    # TP2: its control port is its kv port + 2; the first one's is its kv port + 8.
    with (
        bound(first),
        pytest.raises(OSError, match=f"d0 prefill 0: {numbers + 8} is taken"),
        bound(at(other, numbers + 6)),
    ):
        pass


async def test_simulated_engines_all_start(engines: list[Engine]) -> None:
    """The same with the engine simulator, which reads arguments and environment as the engine does."""
    async with AsyncExitStack() as stack:
        nodes = [node_of(engine) for engine in engines]
        for node in nodes:
            await start(node, stack)
        assert all(node.started.is_set() for node in nodes)


async def test_a_simulated_engine_on_anothers_control_port_does_not_start(engines: list[Engine]) -> None:
    first, second = (engine for engine in engines if engine.name in ("d0 prefill 0", "d0 prefill 1"))
    async with AsyncExitStack() as stack:
        await start(node_of(first), stack)
        with pytest.raises(OSError, match="already in use"):
            await start(node_of(at(second, json.loads(first.flag("--kv-transfer-config"))["kv_port"])), stack)


def node_of(engine: Engine) -> Node:
    env = {name: value.replace("$(POD_IP)", LOOPBACK) for name, value in engine.env.items()}
    return Node(*prepare(engine.argv[1:], {**env, **QUICK}))


async def start(node: Node, stack: AsyncExitStack) -> None:
    """Wait until a node has started. Raises what ends it instead."""
    running = asyncio.create_task(node.run())
    stack.push_async_callback(lambda: asyncio.gather(running, return_exceptions=True))
    stack.callback(running.cancel)
    starting = asyncio.create_task(node.started.wait())
    await asyncio.wait([running, starting], return_when=asyncio.FIRST_COMPLETED)
    starting.cancel()
    if running.done():
        running.result()
