"""The body of `POST /v1/chat/completions`: checked where Streamway must understand it, passed on as it is.

Fields that are not named here reach the engine untouched in `openai_body`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from services.edge.core.json_errors import explain
from streamway.errors import InvalidArgument, Malformed, TooLarge
from streamway.v1 import common_pb2

Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopText = Annotated[str, Meta(min_length=1, max_length=256)]
TokenCount = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
# What a GenerationRequest may have around the body and the typed fields: ids, trace, metadata, protobuf's own lengths.
ENVELOPE_BYTES: Final = 16 * 1024


class ContentPart(Struct):
    """A typed part of a message; only text is looked at."""

    type: str
    text: str = ""


class ChatMessage(Struct):
    """One turn of the conversation. What a role needs besides is the engine's to check."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw | None = None
    refusal: str | None = None


class StreamOptions(Struct):
    """How a stream ends."""

    include_usage: bool | None = None


class Tool(Struct):
    """A tool the model may call."""

    type: str


class ChatBody(Struct):
    """The fields of a chat completion request that Streamway reads or checks."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Int64 | None = None
    n: Annotated[int, Meta(ge=1, le=16)] | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=16)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    response_format: Tool | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=256)] | None = None

    @property
    def include_usage(self) -> bool:
        """The stream ends with a chunk that holds the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        return self.n or 1

    def texts(self) -> list[tuple[str, str]]:
        """Role and plain text of each message."""
        return [(message.role, _text(message)) for message in self.messages]


_decoder: Final = msgspec.json.Decoder(ChatBody)


def parse(body: bytes) -> ChatBody:
    """The checked request. Raises Malformed or InvalidArgument with the field at fault."""
    if not body:
        raise Malformed("the request body", "it is empty; send a JSON object")
    try:
        chat = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise explain(problem, "the request body") from None
    for index, message in enumerate(chat.messages):
        if message.role not in _ROLES:
            known = ", ".join(sorted(_ROLES))
            raise InvalidArgument(f"messages[{index}].role", f"{message.role[:64]!r} is unknown; known roles: {known}")
        if message.content is None and message.role != "assistant":
            raise InvalidArgument(f"messages[{index}].content", "this field is required")
    if chat.stream_options is not None and not chat.stream:
        raise InvalidArgument("stream_options", "only allowed when 'stream' is true")
    if chat.top_logprobs is not None and not chat.logprobs:
        raise InvalidArgument("top_logprobs", "only allowed when 'logprobs' is true")
    return chat


def to_request(chat: ChatBody, body: bytes, max_message_bytes: int) -> common_pb2.GenerationRequest:
    """The request for the mesh, without generation, session and tenant.

    The conversation is in it twice, as the body and as typed messages; where that would not fit the mesh's message limit
    the typed one is left out. Raises TooLarge when the body alone does not fit.
    """
    if len(body) + ENVELOPE_BYTES > max_message_bytes:
        raise TooLarge("the request body", max_message_bytes - ENVELOPE_BYTES, "STREAMWAY_MAX_MESSAGE_BYTES")
    request = common_pb2.GenerationRequest(
        model=chat.model,
        sampling=common_pb2.Sampling(
            temperature=chat.temperature,
            top_p=chat.top_p,
            top_k=chat.top_k,
            min_p=chat.min_p,
            presence_penalty=chat.presence_penalty,
            frequency_penalty=chat.frequency_penalty,
            seed=chat.seed,
            n=chat.n,
        ),
        limits=common_pb2.Limits(
            max_tokens=chat.max_completion_tokens or chat.max_tokens,
            stop=[chat.stop] if isinstance(chat.stop, str) else chat.stop or [],
        ),
        openai_body=body,
        on_disconnect=common_pb2.ON_DISCONNECT_CANCEL,
    )
    for message in chat.messages:
        request.messages.add(role=message.role, content=_text(message), name=message.name or "")
    if request.ByteSize() + ENVELOPE_BYTES > max_message_bytes:
        del request.messages[:]
    return request


def _text(message: ChatMessage) -> str:
    """The plain text of a message; parts that are not text have none."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content or ())
