"""Bodies of the two completion endpoints: parse what is asked, word the answer, whole or as server-sent events."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from uuid import uuid4

from kvpp_engine_simulator.engine import Request, Token
from kvpp_engine_simulator.text import count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kvpp_engine_simulator.arguments import EngineArguments, Json

COMPLETION_TOKENS = 16
"""`max_tokens` of /v1/completions where the caller says nothing; a chat has no limit (OpenAI's and vLLM's default)."""


class BadRequest(Exception):  # noqa: N818 - named as the HTTP status is
    """The caller's mistake; `body` and `status` are the answer."""

    def __init__(
        self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST, kind: str = "BadRequestError"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, kind, status)


def error_body(message: str, kind: str, status: HTTPStatus) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": int(status)}}


@dataclass(frozen=True)
class Call:
    """One request to a completion endpoint, checked."""

    id: str
    model: str
    chat: bool
    stream: bool
    usage_in_stream: bool
    prompt_tokens: int
    engine: str
    request: Request


def parse(body: Json, arguments: EngineArguments, engine: str, *, chat: bool) -> Call:
    """Check what is asked. Raises `BadRequest`."""
    model = body.get("model", arguments.served_names[0])
    if model not in arguments.served_names:
        raise BadRequest(f"The model `{model}` does not exist.", HTTPStatus.NOT_FOUND, "NotFoundError")
    prompt = chat_prompt(body.get("messages")) if chat else plain_prompt(body.get("prompt"))
    limit = body.get("max_completion_tokens", body.get("max_tokens", None if chat else COMPLETION_TOKENS))
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise BadRequest(f"max_tokens must be at least 1, got {limit}.")
    prompt_tokens = count(prompt)
    if prompt_tokens + (limit or 1) > arguments.max_model_len:
        raise BadRequest(
            f"This model's maximum context length is {arguments.max_model_len} tokens. However, you requested "
            f"{limit or 0} output tokens and your prompt contains {prompt_tokens} input tokens."
        )
    return Call(
        id=f"{'chatcmpl' if chat else 'cmpl'}-{body.get('request_id') or uuid4().hex}",
        model=model,
        chat=chat,
        stream=bool(body.get("stream", False)),
        usage_in_stream=bool((body.get("stream_options") or {}).get("include_usage", False)),
        prompt_tokens=prompt_tokens,
        engine=engine,
        request=Request(prompt, limit, body.get("kv_transfer_params") or {}),
    )


def plain_prompt(prompt: object) -> str:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(isinstance(part, (str, int)) for part in prompt):
        return " ".join(map(str, prompt))  # token ids are as good as words here
    raise BadRequest("prompt must be a non-empty string or a list of tokens")


def chat_prompt(messages: object) -> str:
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadRequest("messages must be a non-empty list of objects")
    return "\n".join(f"<|{message.get('role')}|> {content_of(message.get('content'))}" for message in messages)


def content_of(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def usage(call: Call, generated: int) -> Json:
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": generated,
        "total_tokens": call.prompt_tokens + generated,
        "prompt_tokens_details": None,
    }


def envelope(call: Call, kind: str, choices: list[Json]) -> Json:
    return {
        "id": call.id, "object": kind, "created": int(time.time()), "model": call.model, "choices": choices,
        "system_fingerprint": call.engine,
    }  # fmt: skip


async def whole(call: Call, tokens: AsyncIterator[Token]) -> Json:
    """Write the answer in one piece."""
    words, last = [], None
    async for token in tokens:
        words.append(token.word)
        last = token
    text, reason = " ".join(words), last.finish_reason if last else "length"
    choice: Json = {"index": 0, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    choice |= {"message": {"role": "assistant", "content": text}} if call.chat else {"text": text}
    body = envelope(call, "chat.completion" if call.chat else "text_completion", [choice])
    return {**body, "usage": usage(call, len(words)), "kv_transfer_params": last.transfer if last else None}


async def events(call: Call, tokens: AsyncIterator[Token]) -> AsyncIterator[bytes]:
    """Write the answer as it is made, one event a token."""
    kind = "chat.completion.chunk" if call.chat else "text_completion"
    generated = 0
    async for token in tokens:
        if call.chat and not generated:
            yield event(
                envelope(
                    call, kind, [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
                )
            )
        word = token.word if not generated else f" {token.word}"
        generated += 1
        choice: Json = {"index": 0, "logprobs": None, "finish_reason": token.finish_reason, "stop_reason": None}
        choice |= {"delta": {"content": word}} if call.chat else {"text": word}
        yield event(envelope(call, kind, [choice]))
    if call.usage_in_stream:
        yield event({**envelope(call, kind, []), "usage": usage(call, generated)})
    yield b"data: [DONE]\n\n"


def event(body: Json) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"
