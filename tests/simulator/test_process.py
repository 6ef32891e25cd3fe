"""The program as a container runs it: exit codes, last words, signals."""

from __future__ import annotations

import signal

import pytest
from kvpp_engine_simulator.local import EngineProcess, free_ports, prefill

GLM = "/weights/GLM-5.2"


async def test_sigterm_while_serving_is_a_clean_end() -> None:
    async with EngineProcess(prefill(free_ports(9))) as engine:
        await engine.says("Application startup complete")
        engine.send(signal.SIGTERM)
        assert await engine.exit_code() == 0


@pytest.mark.parametrize(
    ("arguments", "env", "code", "words"),
    [
        ([GLM, "--frobnicate", "1"], {}, 2, "vllm serve: error: "),
        ([GLM, "--tensor-parallel-size", "8", "--additional-config", '{"enable_kvpp":true}'], {}, 1, "GRAPH001"),
        ([GLM], {"SIMULATOR_FAULT": "out-of-memory"}, 1, "torch.OutOfMemoryError: NPU out of memory"),
    ],
)
async def test_refusals_end_the_process(arguments: list[str], env: dict[str, str], code: int, words: str) -> None:
    async with EngineProcess(arguments, env) as engine:
        assert await engine.exit_code() == code
        assert words in "\n".join(engine.output)


async def test_a_taken_port_ends_the_process() -> None:
    kv_port = free_ports(9)
    async with EngineProcess(prefill(kv_port)) as first:
        await first.says("Application startup complete")
        async with EngineProcess(prefill(kv_port)) as second:
            assert await second.exit_code() == 1
            assert "ddress already in use" in "\n".join(second.output)


async def test_a_crash_is_sudden() -> None:
    async with EngineProcess([GLM], {"SIMULATOR_FAULT": "crash"}) as engine:
        await engine.says("Application startup complete")
        await engine.ask({"prompt": "hello"})
        assert await engine.exit_code() == 139
