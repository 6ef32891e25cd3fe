"""Two engines, real sockets between them: what a P/D pair shows of itself."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from kvpp_engine_simulator.local import LocalEngine, decode, free_ports, prefill

if TYPE_CHECKING:
    import aiohttp

PROMPT = "one two three four five"
REMOTE = {"do_remote_decode": True, "do_remote_prefill": False, "remote_host": None, "remote_port": None}


async def complete(http: aiohttp.ClientSession, engine: LocalEngine, **body: Any) -> tuple[int, dict[str, Any]]:
    asked = {"model": "glm", "prompt": PROMPT, "temperature": 0, **body}
    async with http.post(f"{engine.url}/v1/completions", json=asked) as response:
        return response.status, await response.json()


async def handed(http: aiohttp.ClientSession, engine: LocalEngine) -> dict[str, Any]:
    status, answer = await complete(http, engine, max_tokens=1, kv_transfer_params=REMOTE)
    assert status == 200
    params: dict[str, Any] = answer["kv_transfer_params"]
    return params


def text(answer: dict[str, Any]) -> str:
    found: str = answer["choices"][0]["text"]
    return found


async def metric(http: aiohttp.ClientSession, engine: LocalEngine, name: str) -> float:
    async with http.get(f"{engine.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


async def test_prefill_to_decode(http: aiohttp.ClientSession) -> None:
    kv_port = free_ports(9)
    async with LocalEngine(prefill(kv_port)) as p, LocalEngine(decode(kv_port)) as d:
        alone = text((await complete(http, p, max_tokens=8))[1])
        params = await handed(http, p)
        assert params == {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [[0]],
            "remote_num_prompt_tokens": 5,
            "remote_engine_id": params["remote_engine_id"],
            "remote_request_id": params["remote_request_id"],
            "remote_host": "127.0.0.1",
            "remote_port": kv_port + 8,  # kv_port + N + dp rank
            "last_token_id": params["last_token_id"],
        }
        status, answer = await complete(http, d, max_tokens=32, kv_transfer_params=params)
        assert status == 200
        content, proof = text(answer).split(" [")
        assert content == alone
        assert (
            proof == f"KV of 5 tokens handed over from {params['remote_engine_id']} to {answer['system_fingerprint']}]"
        )
        # 92,436 bytes a token of GLM-5.2: 78 layers of 1152, 21 indexers of 256, unquantized.
        assert await metric(http, d, "vllm:mooncake_bytes_transferred_sum") == 5 * (78 * 1152 + 21 * 256)
        # Acknowledged, so prefill has let go of it: a second fetch finds nothing.
        assert (await complete(http, d, max_tokens=8, kv_transfer_params=params))[0] == 500


@pytest.mark.parametrize(
    ("policy", "status", "told"),
    [("fail", 500, None), ("recompute", 200, "recomputed by")],
)
async def test_a_restarted_prefill_engine_has_another_id(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, policy: str, status: int, told: str | None
) -> None:
    kv_port, port = free_ports(9), free_ports()
    async with LocalEngine(decode(kv_port, policy=policy)) as d:
        async with LocalEngine(prefill(kv_port), port=port) as p:
            stale = await handed(http, p)
        async with LocalEngine(prefill(kv_port), port=port) as p:
            got, answer = await complete(http, d, max_tokens=64, kv_transfer_params=stale)
            assert got == status
            assert told is None or told in text(answer)
            assert "engine id mismatch" in caplog.text
            assert await metric(http, d, "vllm:mooncake_num_failed_transfers_total") == 1


async def test_layouts_that_differ_fail_every_transfer(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    kv_port = free_ports(9)
    indexer = ("--attention-config", json.dumps({"indexer_kv_dtype": "fp8"}))
    async with LocalEngine(prefill(kv_port, *indexer)) as p, LocalEngine(decode(kv_port)) as d:
        status, _ = await complete(http, d, kv_transfer_params=await handed(http, p))
        assert status == 500
        assert "KV cache block lengths differ between P and D: indexer" in caplog.text


async def test_decode_without_parameters_does_everything_itself(http: aiohttp.ClientSession) -> None:
    async with LocalEngine(decode(free_ports(2))) as d:
        _, answer = await complete(http, d, max_tokens=64)
        assert text(answer).endswith(f"[prefilled and decoded by {answer['system_fingerprint']}]")
        assert await metric(http, d, "vllm:mooncake_bytes_transferred_sum") == 0


async def test_a_transfer_that_moves_other_bytes_is_silent(http: aiohttp.ClientSession) -> None:
    """A missing /etc/hccn.conf: fluent, wrong, and without an error."""
    kv_port = free_ports(9)
    async with LocalEngine(prefill(kv_port)) as p, LocalEngine(decode(kv_port), {"SIMULATOR_FAULT": "garble"}) as d:
        alone = text((await complete(http, p, max_tokens=8))[1])
        status, answer = await complete(http, d, max_tokens=8, kv_transfer_params=await handed(http, p))
        assert status == 200
        assert text(answer) != alone


async def test_prefill_keeps_nothing_for_ever(http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture) -> None:
    kv_port = free_ports(9)
    env = {"VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": "0"}
    async with LocalEngine(prefill(kv_port), env) as p:
        await handed(http, p)
        await handed(http, p)
        assert "Force freed expired Mooncake request" in caplog.text


@pytest.mark.parametrize(("seconds", "status"), [(60, 200), (0, 500)])
async def test_prefill_ends_when_decode_has_what_it_kept(
    http: aiohttp.ClientSession, seconds: int, status: int
) -> None:
    """Or when its time for that is over."""
    kv_port = free_ports(9)
    async with (
        LocalEngine(prefill(kv_port, "--shutdown-timeout", str(seconds))) as p,
        LocalEngine(decode(kv_port)) as d,
    ):
        params = await handed(http, p)
        stopping = asyncio.create_task(p.stop())
        if not seconds:
            await stopping
        else:
            await asyncio.sleep(0.3)
            assert not stopping.done()
        assert (await complete(http, d, max_tokens=8, kv_transfer_params=params))[0] == status
        await stopping
