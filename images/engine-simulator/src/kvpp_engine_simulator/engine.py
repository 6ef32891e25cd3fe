"""Requests in, tokens out: slots, prefill, hand-over, decode, faults."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from itertools import count as counting
from typing import TYPE_CHECKING
from uuid import uuid4

from kvpp_engine_simulator import text
from kvpp_engine_simulator.transfer import Consumer, Producer, TransferError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from kvpp_engine_simulator.arguments import EngineArguments, Json
    from kvpp_engine_simulator.metrics import Metrics
    from kvpp_engine_simulator.settings import Settings

log = logging.getLogger(__name__)

CRASH_EXIT_CODE = 139
"""128 + SIGSEGV: how a device fault ends a worker."""


LOOK_SECONDS = 0.05
"""Between two looks at what decode has fetched."""


class LoadError(Exception):
    """KV could not be loaded and the policy is `fail`: the request ends with an error."""


@dataclass(frozen=True)
class Request:
    prompt: str
    max_tokens: int | None
    transfer: Json


@dataclass(frozen=True)
class Token:
    word: str
    finish_reason: str | None = None
    """On the last token: `stop` or `length`."""
    transfer: Json | None = None
    """On the last token of a prompt that decode shall fetch."""


class Engine:
    """An engine that has loaded its model."""

    def __init__(self, arguments: EngineArguments, settings: Settings, metrics: Metrics, bytes_per_token: int) -> None:
        self.id = f"{os.urandom(4).hex()}-{uuid4().hex[:8]}"
        """Fresh in every process (vllm-ascend appends a new suffix to whatever engine_id says)."""
        self._arguments, self._settings, self._metrics = arguments, settings, metrics
        self._bytes_per_token = bytes_per_token
        self._slots = asyncio.Semaphore(arguments.max_num_seqs)
        self._taken = counting(1)
        self._stuck = asyncio.Event()
        handover = arguments.handover
        self._consumer = Consumer(arguments, handover) if handover and not handover.is_producer else None
        self._producers: list[Producer] = []
        if handover is not None and handover.is_producer:
            self._producers = [
                Producer(self.id_of(rank), arguments, settings.host, port, settings.handover_seconds)
                for rank, port in arguments.control_ports(handover).items()
            ]

    def id_of(self, rank: int) -> str:
        return f"{self.id}_dp{rank}" if self._arguments.parallel.data > 1 else self.id

    async def open(self) -> None:
        """Bind the control ports. Raises `OSError`."""
        for producer in self._producers:
            await producer.open()

    async def close(self) -> None:
        for producer in self._producers:
            await producer.close()

    @property
    def kept(self) -> int:
        """Prompts that decode has not fetched yet."""
        return sum(producer.waiting for producer in self._producers)

    async def fetched(self) -> None:
        """Wait until decode has all: such prompts count as work (vLLM v1/core/sched/scheduler.py, has_finished_requests)."""
        while self.kept:  # noqa: ASYNC110 - an entry may also go by its age, which nobody announces
            await asyncio.sleep(LOOK_SECONDS)

    async def stuck(self) -> None:
        """Wait for ever if the `hang` fault has struck."""
        if self._stuck.is_set():
            await asyncio.Event().wait()

    async def generate(self, request: Request) -> AsyncGenerator[Token, None]:
        """Yield tokens of the answer, one by one. Raises `LoadError` before the first."""
        await self._fault()
        self._metrics.waiting.inc()
        try:
            await self._slots.acquire()
        finally:
            self._metrics.waiting.dec()
        self._metrics.running.inc()
        reason = "abort"
        try:
            async for token in self._run(request):
                reason = token.finish_reason or reason
                yield token
        except LoadError:
            reason = "error"
            raise
        finally:
            self._metrics.running.dec()
            self._metrics.finished[reason].inc()
            self._slots.release()

    async def _run(self, request: Request) -> AsyncIterator[Token]:
        cache, origin = await self._cache(request)
        self._metrics.prompt_tokens.inc(cache.tokens)
        words = text.answer(cache, origin)
        room = self._arguments.max_model_len - cache.tokens
        limit = min(len(words), room if request.max_tokens is None else request.max_tokens)
        for position, word in enumerate(words[:limit], 1):
            await asyncio.sleep(self._settings.token_seconds)
            self._metrics.generation_tokens.inc()
            if position < limit:
                yield Token(word)
            else:
                reason = "stop" if limit == len(words) else "length"
                yield Token(word, reason, self._keep(request, cache, word) if reason == "length" else None)

    async def _cache(self, request: Request) -> tuple[text.KvCache, text.Origin]:
        own = text.prefill(request.prompt)
        if self._consumer is None or not request.transfer.get("do_remote_prefill"):
            return own, text.Origin(self.id, self.id)
        source = str(request.transfer.get("remote_engine_id"))
        started = time.monotonic()
        try:
            pulled = await self._consumer.pull(request.transfer)
        except TransferError as error:
            self._metrics.failed_transfers.inc()
            log.error("Mooncake D receive failed: %s, failure_policy=%s", error, self._consumer.on_failure)  # noqa: TRY400
            if self._consumer.on_failure != "recompute":
                raise LoadError(str(error)) from error
            return own, text.Origin(self.id, source)
        self._metrics.transfer_seconds.observe(time.monotonic() - started)
        self._metrics.transfer_bytes.observe(pulled.tokens * self._bytes_per_token)
        arrived = pulled.garbled() if self._settings.fault.kind == "garble" else pulled
        return arrived, text.Origin(self.id, source, handed_over=True)

    def _keep(self, request: Request, cache: text.KvCache, last: str) -> Json | None:
        """Keep the prompt for decode; as in pull_scheduler.request_finished, only if it ended by its length."""
        if not self._producers or not request.transfer.get("do_remote_decode") or self._settings.fault.kind == "keep":
            return None
        producer = min(self._producers, key=lambda producer: producer.waiting)
        return producer.keep(cache, text.VOCABULARY.index(last) if last in text.VOCABULARY else 0)

    async def _fault(self) -> None:
        await self.stuck()
        fault = self._settings.fault
        if fault.kind in ("crash", "hang") and next(self._taken) > fault.after:
            log.critical("simulated %s after %d requests", fault.kind, fault.after)
            if fault.kind == "crash":
                os._exit(CRASH_EXIT_CODE)
            self._stuck.set()
            await self.stuck()
