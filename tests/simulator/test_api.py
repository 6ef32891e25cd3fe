"""The HTTP face: what a caller sees of one engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from kvpp_engine_simulator.local import LocalEngine

GLM = ["/weights/GLM-5.2-W4A8C8", "--served-model-name", "glm", "--tensor-parallel-size", "8", "--max-model-len", "64"]
KVPP = ["--enforce-eager", "--additional-config", json.dumps({"enable_kvpp": True})]
INDEXER = ["--attention-config", json.dumps({"indexer_kv_dtype": "fp8"})]


async def events(response: aiohttp.ClientResponse) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in (await response.text()).splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_a_chat_whole_and_streamed_is_the_same(http: aiohttp.ClientSession) -> None:
    async with LocalEngine(GLM) as engine:
        body = {"model": "glm", "messages": [{"role": "user", "content": "hello"}]}
        async with http.post(f"{engine.url}/v1/chat/completions", json=body) as response:
            answer = await response.json()
        assert answer["choices"][0]["finish_reason"] == "stop"
        whole = answer["choices"][0]["message"]["content"]
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with http.post(f"{engine.url}/v1/chat/completions", json=streamed) as response:
            assert response.content_type == "text/event-stream"
            *chunks, usage = await events(response)
        assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == whole
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert usage["usage"]["completion_tokens"] == len(whole.split())


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("completions", {"model": "other", "prompt": "x"}, 404, "The model `other` does not exist."),
        ("completions", {"model": "glm"}, 400, "prompt must be"),
        ("completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ("completions", {"prompt": "x " * 60, "max_tokens": 8}, 400, "maximum context length is 64 tokens"),
        ("chat/completions", {"messages": []}, 400, "messages must be"),
    ],
)
async def test_mistakes(http: aiohttp.ClientSession, path: str, body: dict[str, Any], status: int, words: str) -> None:
    async with LocalEngine(GLM) as engine, http.post(f"{engine.url}/v1/{path}", json=body) as response:
        assert response.status == status
        assert words in (await response.json())["error"]["message"]


async def test_the_key_guards_v1_only(http: aiohttp.ClientSession) -> None:
    async with LocalEngine(GLM, {"VLLM_API_KEY": "secret"}) as engine:
        seen = {}
        for path, key in (("/v1/models", ""), ("/v1/models", "wrong"), ("/v1/models", "secret"), ("/health", "")):
            async with http.get(engine.url + path, headers={"Authorization": f"Bearer {key}"}) as response:
                seen[path, key] = response.status
        assert seen == {
            ("/v1/models", ""): 401,
            ("/v1/models", "wrong"): 401,
            ("/v1/models", "secret"): 200,
            ("/health", ""): 200,
        }


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [  # seed guide, KV Cache Capacity: 235,008 and 1,467,904 on one node; half a percent is what the arithmetic is off
        ([*GLM, *INDEXER, "--enforce-eager"], 235_008),
        ([*GLM, *INDEXER, *KVPP], 1_467_904),
    ],
)
async def test_capacity_is_what_the_guide_measured(
    http: aiohttp.ClientSession, arguments: list[str], tokens: int
) -> None:
    async with LocalEngine(arguments) as engine, http.get(f"{engine.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    (info,) = [line for line in lines if line.startswith("vllm:cache_config_info{")]
    shown = int(info.partition('kv_cache_size_tokens="')[2].partition('"')[0])
    assert shown % 128 == 0
    assert shown == pytest.approx(tokens, rel=0.005)


async def test_draining_lets_requests_end(http: aiohttp.ClientSession) -> None:
    arguments = [*GLM, "--shutdown-timeout", "30"]
    async with LocalEngine(arguments, {"SIMULATOR_TOKEN_SECONDS": "0.05"}) as engine:
        streamed = {"prompt": "hello", "stream": True, "max_tokens": 10}
        async with http.post(f"{engine.url}/v1/completions", json=streamed) as response:
            await response.content.readline()
            stopping = asyncio.create_task(engine.stop())
            rest = (await response.content.read()).decode()
        await stopping
        assert rest.rstrip().endswith("data: [DONE]")


async def test_without_a_shutdown_timeout_requests_are_cut_off(http: aiohttp.ClientSession) -> None:
    async with LocalEngine(GLM, {"SIMULATOR_TOKEN_SECONDS": "5"}) as engine:
        asking = asyncio.create_task(http.post(f"{engine.url}/v1/completions", json={"prompt": "hello"}).__aenter__())
        await running(http, engine, 1)
        await engine.stop()
        with pytest.raises(aiohttp.ClientError):
            await asking


async def test_slots_are_limited_and_counted(http: aiohttp.ClientSession) -> None:
    async with LocalEngine([*GLM, "--max-num-seqs", "2"], {"SIMULATOR_TOKEN_SECONDS": "5"}) as engine:

        async def ask() -> None:
            async with http.post(f"{engine.url}/v1/completions", json={"prompt": "hello"}) as response:
                await response.read()

        asked = [asyncio.create_task(ask()) for _ in range(5)]
        await running(http, engine, 2)
        assert await gauge(http, engine, "vllm:num_requests_waiting") == 3
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await running(http, engine, 0)  # whoever hangs up is aborted


async def test_a_hang_is_silent_everywhere(http: aiohttp.ClientSession) -> None:
    async with LocalEngine(GLM, {"SIMULATOR_FAULT": "hang", "SIMULATOR_FAULT_AFTER": "1"}) as engine:
        async with http.post(f"{engine.url}/v1/completions", json={"prompt": "a"}) as response:
            assert response.status == 200
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/health", None)):
            with pytest.raises(TimeoutError):
                async with http.request(
                    "POST" if body else "GET", engine.url + path, json=body, timeout=aiohttp.ClientTimeout(total=0.3)
                ):
                    pass


async def gauge(http: aiohttp.ClientSession, engine: LocalEngine, name: str) -> float:
    async with http.get(f"{engine.url}/metrics") as response:
        (line,) = [line for line in (await response.text()).splitlines() if line.startswith(name + "{")]
    return float(line.rpartition(" ")[2])


async def running(http: aiohttp.ClientSession, engine: LocalEngine, number: int) -> None:
    """Wait until so many requests run."""
    async with asyncio.timeout(30):
        while await gauge(http, engine, "vllm:num_requests_running") != number:  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.02)
