"""A kept conversation as text, and the request that has it in front.

    {"role":"system","content":"…"},        the opening: the system messages it begins with
    {"role":"user","content":"…"},          a turn: what a client sent, as it sent it, and the answer
    {"role":"assistant","content":"…"},

Every message ends with a comma, so that texts are joined as they are. Messages of an OpenAI body keep their bytes: parts, tool
calls and fields that nobody here knows come back as they came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from streamway.errors import InvalidArgument, Malformed, TooLarge
from streamway.openai import Choice
from streamway.v1 import common_pb2

_OPENING_ROLES: Final = frozenset({"system", "developer"})
# What a request may have around the conversation: ids, trace, metadata, protobuf's own lengths.
_ENVELOPE_BYTES: Final = 16 * 1024


class Sent(NamedTuple):
    """The messages of a request. `opening`: those of the system that it begins with."""

    opening: bytes
    turns: bytes

    @property
    def text(self) -> bytes:
        """All."""
        return self.opening + self.turns


class _Role(msgspec.Struct):
    role: str = ""


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Turn(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """Its plain text; parts that are not text have none."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())

    @property
    def plain(self) -> bool:
        """A typed message says all of it."""
        raws = bytes(self.tool_calls), bytes(self.function_call)
        called = any(raw not in (b"", b"null") for raw in raws) or self.tool_call_id is not None
        return isinstance(self.content, str) and not called


_body: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages: Final = msgspec.json.Decoder(list[msgspec.Raw])
_turns: Final = msgspec.json.Decoder(list[_Turn])
_role: Final = msgspec.json.Decoder(_Role)
_encode: Final = msgspec.json.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeError)


def sent(request: common_pb2.GenerationRequest) -> Sent:
    """What a client sent. Raises Malformed for a body that is no chat completion's, InvalidArgument for one without messages."""
    if request.openai_body:
        try:
            messages = [bytes(message) for message in _messages.decode(_fields(request)["messages"])]
            roles = [_role.decode(message).role for message in messages]
        except KeyError:
            messages, roles = [], []
        except _UNREADABLE as problem:
            raise Malformed("openai_body", str(problem)) from None
    else:
        messages = [_encode(_typed(message)) for message in request.messages]
        roles = [message.role for message in request.messages]
    if not messages:
        raise InvalidArgument("messages", "must not be empty")
    first = next((at for at, role in enumerate(roles) if role not in _OPENING_ROLES), len(roles))
    return Sent(_joined(messages[:first]), _joined(messages[first:]))


def put_in_front(request: common_pb2.GenerationRequest, kept: bytes, max_message_bytes: int, setting: str) -> None:
    """Makes the request what it would be had its client sent everything. Raises TooLarge, which names `setting`, and
    InvalidArgument where typed messages cannot say what is kept."""
    new = sent(request).text
    text = kept + new
    try:
        turns = _turns.decode(_listed(text))
    except _UNREADABLE as problem:
        raise Malformed("messages", str(problem)) from None
    if request.openai_body:
        fields = _fields(request)
        fields["messages"] = msgspec.Raw(_listed(text))
        request.openai_body = _encode(fields)
    elif not all(turn.plain for turn in turns):
        raise InvalidArgument(
            "context", "what is kept has typed parts or tool calls; go on with it by an OpenAI chat completion"
        )
    del request.messages[:]
    for turn in turns:
        request.messages.add(role=turn.role, content=turn.text, name=turn.name or "")
    if request.openai_body and request.ByteSize() + _ENVELOPE_BYTES > max_message_bytes:
        # As the edge does: the body says it all.
        del request.messages[:]
    if request.ByteSize() + _ENVELOPE_BYTES > max_message_bytes:
        raise TooLarge("the conversation", max_message_bytes - _ENVELOPE_BYTES, setting)


def choices_of(request: common_pb2.GenerationRequest, body_choices: int | None) -> int:
    """How many answers are asked for."""
    return body_choices or request.sampling.n or 1


def answer_of(events: Iterable[common_pb2.Event]) -> bytes:
    """The answer as the next message."""
    choice = Choice()
    for event in events:
        if event.HasField("token") and not event.token.choice:
            choice.add(event.token)
    return _joined([_encode(choice.turn())])


def _fields(request: common_pb2.GenerationRequest) -> dict[str, msgspec.Raw]:
    try:
        return _body.decode(request.openai_body)
    except _UNREADABLE as problem:
        raise Malformed("openai_body", str(problem)) from None


def _typed(message: common_pb2.Message) -> dict[str, Any]:
    made = {"role": message.role, "content": message.content}
    return {**made, "name": message.name} if message.name else made


def _joined(messages: Iterable[bytes]) -> bytes:
    return b"".join([message + b"," for message in messages])


def _listed(text: bytes) -> bytes:
    return b"[%b]" % text.removesuffix(b",")
