"""What the operator writes, the engine takes: every process of every example through the engine's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kvpp_engine_simulator.refusal import prepare
from specs import EXAMPLES, planned, read

from kvpp_operator.configuration import Configuration
from kvpp_operator.render.commands import commands
from kvpp_operator.rules import judge
from kvpp_operator.world import OFFLINE

if TYPE_CHECKING:
    from pathlib import Path


def is_built(path: Path) -> bool:
    """Whether this build runs the example; what it can't do yet it refuses by rule BUILD001 and nothing else."""
    errors = [
        f.rule for body in read(path) for f in judge(body, Configuration(), OFFLINE).findings if f.severity == "error"
    ]
    assert set(errors) <= {"BUILD001"}
    return not errors


@pytest.mark.parametrize("path", [path for path in EXAMPLES if is_built(path)], ids=lambda path: path.stem)
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
