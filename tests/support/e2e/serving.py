"""Requests as users send them, and what the simulated engine's answers prove."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp

Json = dict[str, Any]
MODEL = "GLM-5.2"
QUESTION: Json = {"model": MODEL, "messages": [{"role": "user", "content": "Which stones float?"}], "temperature": 0}
# The engine's own sentence: where the keys and values of an answer came from.
HANDED_OVER = re.compile(r"\[KV of \d+ tokens handed over from (\S+) to (\S+)\]")

MEMBERS = re.compile(r'^kvpp_router_members\{role="(\w+)",state="serving"\} (\S+)$', re.MULTILINE)


async def chat(http: aiohttp.ClientSession, url: str, **more: Any) -> str:
    """One answer; every status but 200 is an error."""
    async with http.post(f"{url}/v1/chat/completions", json={**QUESTION, **more}) as response:
        answer = await response.text()
        assert response.status == 200, f"{response.status} {answer}"
        text: str = json.loads(answer)["choices"][0]["message"]["content"]
        return text


async def streamed(http: aiohttp.ClientSession, url: str) -> list[str]:
    """Pieces of an answer in the order of their coming."""
    pieces: list[str] = []
    async with http.post(f"{url}/v1/chat/completions", json={**QUESTION, "stream": True}) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        async for line in response.content:
            data = line.decode().removeprefix("data: ").strip()
            if data and data != "[DONE]":
                pieces += [choice["delta"].get("content") or "" for choice in json.loads(data)["choices"]]
    return pieces


async def handed_over(http: aiohttp.ClientSession, prefill: str, decode: str) -> str:
    """What a router does: prefill computes, decode fetches and answers."""
    remote = {"do_remote_decode": True, "do_remote_prefill": False}
    plain = {"model": MODEL, "prompt": "Which stones float?", "temperature": 0}
    async with http.post(
        f"{prefill}/v1/completions", json={**plain, "max_tokens": 1, "kv_transfer_params": remote}
    ) as one:
        params = (await one.json())["kv_transfer_params"]
    async with http.post(
        f"{decode}/v1/completions", json={**plain, "max_tokens": 40, "kv_transfer_params": params}
    ) as two:
        text: str = (await two.json())["choices"][0]["text"]
        return text


def members(address: str) -> dict[str, int]:
    """Engines that a router pod has behind it, by role, from its own metrics."""
    with urllib.request.urlopen(f"http://{address}:8000/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {role: int(float(count)) for role, count in MEMBERS.findall(text)}
