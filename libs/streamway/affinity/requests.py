"""The session key of a request that comes without an edge: the same one that an edge makes of it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamway.affinity import session_key
from streamway.v1 import common_pb2


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Turn(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        """Parts that are not text have none."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


class _Names(msgspec.Struct):
    """What a body says of whose conversation it is."""

    prompt_cache_key: str | None = None
    user: str | None = None

    @property
    def name(self) -> str:
        return self.prompt_cache_key or self.user or ""


class _Conversation(_Names):
    messages: list[_Turn] = []


_names: Final = msgspec.json.Decoder(_Names)
_conversation: Final = msgspec.json.Decoder(_Conversation)


def key_of(request: common_pb2.GenerationRequest) -> str:
    """16 hex digits; empty when there is nothing to go by.

    An explicit session id first, or that of a kept context, then OpenAI's names in the original body, then the prompt: of the
    typed messages, or of the body where they were left out. A body that can't be read says nothing. Costs a look at the body, and
    only for requests without a session.
    """
    if request.session or request.context.id:
        return session_key.of_id(request.session or request.context.id)
    if request.openai_body:
        said = _look(request)
        if said.name:
            return session_key.choose("", said.name, "", "")
        if isinstance(said, _Conversation) and said.messages:
            turns = ((turn.role, turn.text) for turn in said.messages)
            return session_key.of_prompt(request.tenant, request.model, turns)
    if not request.messages:
        return ""
    # One by one: what follows the first user message need not be read.
    typed = ((message.role, message.content) for message in request.messages)
    return session_key.of_prompt(request.tenant, request.model, typed)


def _look(request: common_pb2.GenerationRequest) -> _Names:
    decoder: msgspec.json.Decoder[Any] = _names if request.messages else _conversation
    try:
        found: _Names = decoder.decode(request.openai_body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _Names()
    return found
