"""What the operator writes, the engine takes: every process of every example through the engine's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kvpp_engine_simulator.refusal import prepare
from specs import EXAMPLES, planned, read

from kvpp_operator.render.commands import commands

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_taken(path: Path) -> None:
    for body in read(path):
        if body["kind"] != "KVPPDeployment":
            continue
        version = body["spec"]["engine"]["version"]
        for command in commands(planned(body)):
            assert command.argv[0] == "serve"
            env = {**command.env, "SIMULATOR_ENGINE_VERSION": version, "VLLM_HOST_IP": "127.0.0.1"}
            engine, _ = prepare(command.argv[1:], env)
            assert (engine.parallel.node_rank, engine.headless) == (command.node_rank, command.node_rank > 0)
            handover = engine.handover
            assert (handover.port if handover else None) == command.kv_port
