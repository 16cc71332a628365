"""Events of a generation as the chunks of an OpenAI stream, one server-sent event each.

    id: 1048576-3                       the cursor of the event
    data: {"id":"chatcmpl-…","object":"chat.completion.chunk", … }

OpenAI's order at the end: the chunk with the finish reason, then, if asked for, the usage in a chunk of its own with no
choices, then `data: [DONE]`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamway.errors import StreamwayError, to_openai_body
from streamway.openai import raw_choice
from streamway.v1 import common_pb2

_encode: Final = msgspec.json.Encoder().encode

PING: Final = b": ping\n\n"
DONE: Final = b"data: [DONE]\n\n"


def completion_id(generation: str) -> str:
    """OpenAI's spelling of a generation's id."""
    return f"chatcmpl-{generation}"


def usage_of(usage: common_pb2.Usage) -> dict[str, Any]:
    """Usage as OpenAI's clients read it; `cost` beside it where the model has a price."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        **({"cost": usage.cost} if usage.HasField("cost") else {}),
    }


def truncation(why: str) -> dict[str, str]:
    """What stands beside OpenAI's fields, as `streamway`, where the mesh has cut an answer."""
    return {"truncated": why}


class ChunkEncoder:
    """Encodes one generation. `created` is Unix seconds; `include_usage` as the client asked."""

    __slots__ = ("_fresh", "_head", "_include_usage", "_middle", "_tail")

    def __init__(self, generation: str, model: str, created: int, choices: int, *, include_usage: bool) -> None:
        fields = {
            "id": completion_id(generation),
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        # {"id":…,"model":…  without the closing brace, and with percent signs made safe for formatting.
        head = (b"data: " + _encode(fields)[:-1]).replace(b"%", b"%%")
        self._include_usage = include_usage
        self._tail = (b',"usage":null' if include_usage else b"") + b"}\n\n"
        self._head = b"id: %d-%d\n" + head
        self._middle = b',"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}]'
        # Choices that have not had their first chunk, which carries the role.
        self._fresh = set(range(choices))

    def token(self, event: common_pb2.Event) -> bytes:
        """The chunks of one piece. Per-token path: plain text in mid-answer costs one encoding of the text."""
        token = event.token
        finished = token.HasField("choice_finished")
        if finished or token.raw_delta or token.choice in self._fresh:
            return self._special(event, finished)
        delta = b'{"content":' + _encode(token.text) + b"}"
        return (
            self._head % (event.epoch, event.position)
            + self._middle % (token.choice, delta, b"null", b"null")
            + self._tail
        )

    def _special(self, event: common_pb2.Event, finished: bool) -> bytes:
        """First, last and structured pieces."""
        token = event.token
        choice: dict[str, Any] = raw_choice(token) if token.raw_delta else {"delta": {}}
        delta = choice["delta"]
        if not token.raw_delta and token.text:
            delta["content"] = token.text
        if token.choice in self._fresh:
            self._fresh.discard(token.choice)
            plain = not token.raw_delta
            delta = {"role": "assistant", **({"content": ""} if plain else {}), **delta}
        head = self._head % (event.epoch, event.position)
        chunks = b""
        logprobs = choice.get("logprobs")
        extra = {name: value for name, value in choice.items() if name not in ("delta", "logprobs", "index")}
        extra.pop("finish_reason", None)
        if delta or logprobs or not finished:
            chunks = head + self._choice(token.choice, delta, logprobs, None, extra) + self._tail
        if finished:
            reason = token.choice_finished.finish_reason
            truncated = token.choice_finished.truncated
            mark = b',"streamway":' + _encode(truncation(truncated)) if truncated else b""
            chunks += head + self._choice(token.choice, {}, None, reason, {}) + mark + self._tail
        return chunks

    def _choice(
        self, index: int, delta: dict[str, Any], logprobs: Any, reason: str | None, extra: dict[str, Any]
    ) -> bytes:
        fields = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, **extra}
        return b',"choices":[' + _encode(fields) + b"]"

    def finished(self, event: common_pb2.Event) -> bytes:
        """The end: usage in a chunk of its own where it was asked for, then the end mark."""
        if not self._include_usage:
            return DONE
        finished = event.finished
        usage = _encode(usage_of(finished.usage)) if finished.HasField("usage") else b"null"
        head = self._head % (event.epoch, event.position)
        return head + b',"choices":[],"usage":' + usage + b"}\n\n" + DONE


def error_event(error: StreamwayError, request_id: str) -> bytes:
    """An error after the 200: in band, and nothing follows it."""
    return b"data: " + _encode(to_openai_body(error, request_id)) + b"\n\n"
