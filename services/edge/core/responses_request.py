"""The body of `POST /v1/responses`, checked, and what of it the response object repeats.

Streamway makes text from text: what a request asks for beyond that is refused by name, never dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from services.edge.core.json_errors import explain
from services.edge.core.openai_request import ENVELOPE_BYTES, TokenCount
from streamway.errors import InvalidArgument, Malformed, TooLarge
from streamway.v1 import common_pb2

_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})
_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text"})
_NONE: Final[tuple[Any, ...]] = ()
# Fields that OpenAI has and that ask for nothing when they have one of these values.
_HARMLESS: Final[dict[str, tuple[Any, ...]]] = {
    "context_management": ([],),
    "conversation": _NONE,
    "include": ([],),
    "max_tool_calls": _NONE,
    "parallel_tool_calls": (True, False),
    "prompt": _NONE,
    "reasoning": ({},),
    "service_tier": ("auto", "default"),
    "stream_options": ({}, {"include_obfuscation": False}),
    "text": ({}, {"format": {"type": "text"}}),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}

Name = Annotated[str, Meta(max_length=256)]


class Part(Struct):
    """A typed part of a message."""

    type: str
    text: str = ""


class Item(Struct):
    """One item of the input; only messages are taken."""

    type: str = "message"
    role: str = ""
    content: str | list[Part] = ""


class ResponsesBody(Struct, forbid_unknown_fields=True):
    """The fields of a request."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    input: Annotated[str, Meta(min_length=1)] | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    previous_response_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    metadata: (
        Annotated[dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)]
        | None
    ) = None
    prompt_cache_key: Name | None = None
    safety_identifier: Name | None = None
    user: Name | None = None
    context_management: Any = None
    conversation: Any = None
    include: Any = None
    max_tool_calls: Any = None
    parallel_tool_calls: Any = None
    prompt: Any = None
    reasoning: Any = None
    service_tier: Any = None
    stream_options: Any = None
    text: Any = None
    tool_choice: Any = None
    tools: Any = None
    top_logprobs: Any = None
    truncation: Any = None

    @property
    def stored(self) -> bool:
        """Whether the response can be retrieved later; as with OpenAI unless the client says no."""
        return self.store is not False


class Message(Struct, array_like=True, frozen=True):
    """One turn of the conversation."""

    role: str
    content: str


class Echo(Struct, frozen=True, omit_defaults=True):
    """What a response object repeats of its request."""

    model: str
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    background: bool = False
    store: bool = True
    previous_response_id: str | None = None
    metadata: dict[str, str] = {}
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None


_decoder: Final = msgspec.json.Decoder(ResponsesBody)


def parse(raw: bytes) -> ResponsesBody:
    """The checked request. Raises Malformed or InvalidArgument with the field at fault."""
    if not raw:
        raise Malformed("the request body", "it is empty; send a JSON object")
    try:
        body = _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise explain(problem, "the request body") from None
    for name, harmless in _HARMLESS.items():
        value = getattr(body, name)
        if value is not None and value not in harmless:
            raise InvalidArgument(name, "this is not supported here; leave it out, or use /v1/chat/completions")
    if body.background and not body.stored:
        raise InvalidArgument("background", "a background response must be stored; leave 'store' out")
    return body


def turns(body: ResponsesBody) -> list[Message]:
    """The input as messages. Raises InvalidArgument for what is not text."""
    if isinstance(body.input, str):
        return [Message("user", body.input)]
    return [_turn(item, f"input[{index}]") for index, item in enumerate(body.input)]


def echo(body: ResponsesBody) -> Echo:
    """What the response object repeats."""
    return Echo(
        model=body.model,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        background=bool(body.background),
        store=body.stored,
        previous_response_id=body.previous_response_id,
        metadata=body.metadata or {},
        prompt_cache_key=body.prompt_cache_key,
        safety_identifier=body.safety_identifier,
        user=body.user,
    )


def to_request(body: ResponsesBody, messages: list[Message], max_message_bytes: int) -> common_pb2.GenerationRequest:
    """The request for the mesh, without generation, session and tenant. `messages`: the whole conversation, without the
    instructions. Raises TooLarge."""
    request = common_pb2.GenerationRequest(
        model=body.model,
        sampling=common_pb2.Sampling(temperature=body.temperature, top_p=body.top_p),
        limits=common_pb2.Limits(max_tokens=body.max_output_tokens),
        on_disconnect=common_pb2.ON_DISCONNECT_CONTINUE if body.background else common_pb2.ON_DISCONNECT_CANCEL,
    )
    if body.instructions:
        request.messages.add(role="system", content=body.instructions)
    for message in messages:
        request.messages.add(role=message.role, content=message.content)
    if request.ByteSize() + ENVELOPE_BYTES > max_message_bytes:
        raise TooLarge("the conversation", max_message_bytes - ENVELOPE_BYTES, "STREAMWAY_MAX_MESSAGE_BYTES")
    return request


def _turn(item: Item, where: str) -> Message:
    if item.type != "message":
        raise InvalidArgument(f"{where}.type", f"{item.type[:64]!r} is not supported; only messages are")
    if item.role not in _ROLES:
        known = ", ".join(sorted(_ROLES))
        raise InvalidArgument(f"{where}.role", f"{item.role[:64]!r} is unknown; known roles: {known}")
    if isinstance(item.content, str):
        return Message(item.role, item.content)
    for index, part in enumerate(item.content):
        if part.type not in _TEXT_PARTS:
            problem = f"{part.type[:64]!r} is not supported; only text is"
            raise InvalidArgument(f"{where}.content[{index}].type", problem)
    return Message(item.role, "".join(part.text for part in item.content))
