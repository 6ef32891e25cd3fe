"""The P/D hand-over: prefill's control servers and decode's way to them.

The real connector speaks ZMQ and msgpack on this port and moves the blocks with its transfer engine; here one TCP
connection with a JSON object a line does both. Who connects where, what is compared and who acknowledges is the same
(vllm-ascend 0.30.0rc2 pull_scheduler.py, pull_worker.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kvpp_engine_simulator.text import KvCache

if TYPE_CHECKING:
    from kvpp_engine_simulator.arguments import EngineArguments, Handover, Json

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
"""ASCEND_CONNECT_TIMEOUT as the operator renders it."""

REQUIRED = ("remote_engine_id", "remote_host", "remote_port", "remote_request_id")


class TransferError(Exception):
    """Decode did not get the KV; the text is for the log, as the real worker's is."""


@dataclass(frozen=True)
class Kept:
    """KV that waits for decode, and since when (`time.monotonic`)."""

    cache: KvCache
    since: float


class Producer:
    """One DP rank of a prefill engine: keeps finished prompts and serves them on its control port."""

    def __init__(self, engine_id: str, arguments: EngineArguments, host: str, port: int, keep_seconds: float) -> None:
        self.engine_id = engine_id
        self._arguments = arguments
        self._host, self._port = host, port
        self._keep_seconds = keep_seconds
        self._kept: dict[str, Kept] = {}
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Bind the control port. Raises `OSError` when somebody has it."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port)
        log.info("Mooncake scheduler sending thread listening on tcp://%s:%d", self._host, self._port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for client in self._clients:
                client.close()

    @property
    def waiting(self) -> int:
        """Prompts that decode has not fetched yet."""
        self._drop_expired()
        return len(self._kept)

    def keep(self, cache: KvCache, last_token: int) -> Json:
        """Keep a prompt's KV and say where it is: the `kv_transfer_params` of the answer."""
        self._drop_expired()
        request = f"cmpl-{uuid4().hex}"
        self._kept[request] = Kept(cache, time.monotonic())
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(range(-(-cache.tokens // self._arguments.block_size)))],
            "remote_num_prompt_tokens": cache.tokens,
            "remote_engine_id": self.engine_id,
            "remote_request_id": request,
            "remote_host": self._host,
            "remote_port": self._port,
            "last_token_id": last_token,
        }

    def _drop_expired(self) -> None:
        oldest = time.monotonic() - self._keep_seconds
        for request in [request for request, kept in self._kept.items() if kept.since < oldest]:
            del self._kept[request]
            log.error("Force freed expired Mooncake request %s after %g seconds", request, self._keep_seconds)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            log.warning("Invalid Mooncake scheduler control frames: %s", error)
        finally:
            self._clients.discard(writer)
            writer.close()

    def _answer(self, message: Json) -> Json:
        match message:
            case {"get_meta": True}:
                parallel = self._arguments.parallel
                return {
                    "engine_id": self.engine_id,
                    "tp_size": parallel.tensor,
                    "pp_size": parallel.pipeline,
                    "pcp_size": parallel.prefill_context,
                    "use_kv_pp": self._arguments.kvpp,
                    "layout": self._arguments.layout,
                }
            case {"read": str(request)} if (kept := self._kept.get(request)) is not None:
                return {"tokens": kept.cache.tokens, "digest": kept.cache.digest}
            case {"done_recving": str(request)}:
                self._kept.pop(request, None)
                return {"ack": True}
        return {"error": f"unknown: {message}"}


class Consumer:
    """A decode engine's side: fetches the KV that a request's parameters point at."""

    def __init__(self, arguments: EngineArguments, handover: Handover) -> None:
        self._layout = arguments.layout
        self.on_failure = handover.on_failure

    async def pull(self, params: Json) -> KvCache:
        """Fetch and acknowledge. Raises `TransferError`."""
        missing = [name for name in REQUIRED if not params.get(name)]
        if missing:
            raise TransferError(f"Got invalid KVTransferParams, without {', '.join(missing)}")
        where = f"{params['remote_host']}:{params['remote_port']}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(params["remote_host"], params["remote_port"])
                try:
                    return await self._fetch(params, reader, writer)
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError) as error:
            raise TransferError(f"Mooncake transfer from {where} failed: {error or type(error).__name__}") from error

    async def _fetch(self, params: Json, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> KvCache:
        async def ask(message: Json) -> Any:
            writer.write(json.dumps(message).encode() + b"\n")
            await writer.drain()
            return json.loads(await reader.readline())

        meta = await ask({"get_meta": True})
        if meta.get("engine_id") != params["remote_engine_id"]:
            raise TransferError(
                f"Mooncake engine id mismatch: expected {params['remote_engine_id']}, got {meta.get('engine_id')}"
            )
        theirs = meta.get("layout", {})
        different = sorted(
            name for name, value in self._layout.items() if name != "draft" and theirs.get(name) != value
        )
        if different:
            raise TransferError(f"KV cache block lengths differ between P and D: {', '.join(different)}")
        if self._layout["draft"] and not theirs.get("draft"):
            raise TransferError("remote metadata is missing layers: the draft's")
        block = await ask({"read": params["remote_request_id"]})
        if "error" in block:
            raise TransferError(f"request {params['remote_request_id']} is not kept by {params['remote_engine_id']}")
        await ask({"done_recving": params["remote_request_id"]})
        return KvCache(block["tokens"], block["digest"])
