"""What an engine's stream says, event by event, told to an `EngineSink`.

Plain text is the fast path: what each chunk of a stream has in common is read once (`template`), the rest of them by one typed
decode, and what came together is told together. Whatever a chunk has beside text is handed on as the engine's own JSON
(`Token.raw_delta`), so that an option this code has never heard of still reaches the client.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec

from services.inference_adapter.backends.openai_http.mending import TextMender
from services.inference_adapter.backends.openai_http.sse import SSEParser
from services.inference_adapter.backends.openai_http.template import Template, template
from services.inference_adapter.interfaces import EngineSink
from streamway.v1 import common_pb2

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _PlainDelta(msgspec.Struct, forbid_unknown_fields=True):
    """A delta with nothing but text. What is typed None may be there as null; anything else takes the slow path."""

    content: str | None = None
    role: str | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None


class _PlainChoice(msgspec.Struct, forbid_unknown_fields=True):
    delta: _PlainDelta
    index: Annotated[int, msgspec.Meta(ge=0, lt=128)] = 0
    finish_reason: str | None = None
    logprobs: None = None
    stop_reason: None = None
    token_ids: tuple[_Count, ...] | None = None


class _PlainChunk(msgspec.Struct):
    choices: tuple[_PlainChoice, ...] = ()
    usage: _Usage | None = None
    error: None = None


_plain: Final = msgspec.json.Decoder(_PlainChunk)
DONE: Final = b"[DONE]"
# So many templates that fitted nothing, and no more are looked for: each chunk of this engine is different.
_MOST_TRIES: Final = 8


class BadChunk(Exception):
    """The engine sent what is not a chunk of a chat completion. The message says what, in a few words."""


class EngineSaid(Exception):
    """The engine reported an error inside its stream, after a good status."""

    def __init__(self, body: Any) -> None:
        super().__init__("error in the stream")
        self.body = body


class ChunkReader:
    """Reads the events of one call in order and tells the sink; the end of the call is its owner's to judge."""

    __slots__ = ("_held_ids", "_menders", "_piece", "_several", "_template", "_tries", "ended", "open", "usage")

    def __init__(self, sink: EngineSink) -> None:
        self._piece, self._several = sink.piece, sink.several
        self._template: Template | None = None
        self._tries = 0
        self._menders: dict[int, TextMender] = {}
        # Tokens that had no text yet, half a character for instance: they belong to the piece that has it.
        self._held_ids: dict[int, tuple[int, ...]] = {}
        self.open: set[int] = set()  # choices that have begun and not ended
        self.ended: set[int] = set()
        self.usage: common_pb2.Usage | None = None

    def mute(self) -> None:
        """Tells the sink nothing more."""
        self._piece = self._several = _nobody

    def read_together(self, parser: SSEParser, data: bytes) -> bytes:
        """Reads the text of the server-sent events that `data` begins with; what is left is the parser's to cut into events."""
        known = self._template
        if (
            known is None
            or known.choice not in self.open
            or self._menders
            or self._held_ids
            or not parser.between_events
        ):
            return data
        texts, size = known.texts(data)
        if not size:
            return data
        self._tries = 0
        if len(texts) == 1:
            self._piece(known.choice, texts[0])
        else:
            self._several(known.choice, texts)
        return data[size:]

    def read(self, data: bytes) -> None:
        """One event, not `[DONE]`. Raises BadChunk and EngineSaid."""
        known = self._template
        if known is not None and known.choice in self.open and not (self._menders or self._held_ids):
            text = known.text(data)
            if text:
                self._tries = 0
                self._piece(known.choice, text)
                return
        try:
            chunk = _plain.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._read_any(data)
            return
        for choice in chunk.choices:
            text = choice.delta.content or ""
            if (
                text
                and choice.finish_reason is None
                and choice.token_ids is None
                and choice.index in self.open
                and not (self._menders or self._held_ids)
            ):
                # Text in mid-answer: nearly every chunk.
                if self._tries < _MOST_TRIES and chunk.usage is None and len(chunk.choices) == 1:
                    self._tries += 1
                    self._template = template(data, choice.index, text, _content)
                self._piece(choice.index, text)
                continue
            if self._menders:
                text = self._mended(choice.index, text, ended=bool(choice.finish_reason))
            self._tell(choice.index, text, b"", choice.finish_reason or "", choice.token_ids or ())
        if chunk.usage is not None:
            self._count(chunk.usage)

    def _read_any(self, data: bytes) -> None:
        """The slow path: tool calls, log probabilities, unknown fields, text cut inside a code point, garbage."""
        try:
            # A half code point survives as lone surrogates; the mender puts the halves together.
            chunk = json.loads(data.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            raise BadChunk("an event is not JSON") from None
        if not isinstance(chunk, dict):
            raise BadChunk("an event is not a JSON object")
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise EngineSaid(chunk)
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise BadChunk("`choices` is not a list")
        for choice in choices:
            self._read_choice(choice)
        if chunk.get("usage") is not None:
            try:
                self._count(msgspec.convert(chunk["usage"], _Usage))
            except msgspec.ValidationError:
                self.usage = None  # what was made stands; the count is estimated

    def _read_choice(self, choice: Any) -> None:
        if not isinstance(choice, dict):
            raise BadChunk("a choice is not an object")
        index, finish, delta = choice.pop("index", 0), choice.pop("finish_reason", None), choice.get("delta") or {}
        content = delta.get("content") if isinstance(delta, dict) else 0
        if not isinstance(index, int) or not 0 <= index < 128 or not isinstance(content, str | None):
            raise BadChunk("a choice has a wrong index or content")
        if not isinstance(finish, str | None):
            raise BadChunk("`finish_reason` is not a text")
        text = self._mended(index, content or "", ended=bool(finish))
        if content is not None:
            delta["content"] = text
        token_ids = _token_ids(choice.pop("token_ids", None))
        raw = _raw_delta(choice, delta)
        self._tell(index, text, raw, finish or "", token_ids)

    def _mended(self, index: int, text: str, *, ended: bool) -> str:
        mender = self._menders.get(index)
        if mender is None:
            mender = self._menders[index] = TextMender()
        made = mender.feed(text) + (mender.end() if ended else "")
        if ended or not mender.pending:
            del self._menders[index]
        return made

    def _tell(self, index: int, text: str, raw: bytes, finish: str, token_ids: tuple[int, ...]) -> None:
        if index in self.ended:
            if text or raw:
                raise BadChunk("a choice goes on after its finish reason")
            return
        if self._held_ids and (text or raw or finish):
            token_ids = (*self._held_ids.pop(index, ()), *token_ids)
        if finish:
            self.open.discard(index)
            self.ended.add(index)
            self._piece(index, text, raw_delta=raw, finish_reason=finish, token_ids=token_ids)
            return
        self.open.add(index)
        if text or raw:
            self._piece(index, text, raw_delta=raw, token_ids=token_ids)
        elif token_ids:
            self._held_ids[index] = (*self._held_ids.get(index, ()), *token_ids)

    def _count(self, usage: _Usage) -> None:
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        self.usage = common_pb2.Usage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_prompt_tokens=(prompt.cached_tokens or 0) if prompt else 0,
            reasoning_tokens=(completion.reasoning_tokens or 0) if completion else 0,
        )


def _content(data: bytes) -> str | None:
    try:
        chunk = _plain.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return chunk.choices[0].delta.content if chunk.choices else None


def counted(usage: common_pb2.Usage | None, made_tokens: int) -> common_pb2.Usage | None:
    """The usage of a whole answer of which `made_tokens` went into the prompt, since another call had made them."""
    if usage is not None and made_tokens:
        usage.completion_tokens += made_tokens
        usage.prompt_tokens = max(0, usage.prompt_tokens - made_tokens)
        usage.cached_prompt_tokens = min(usage.cached_prompt_tokens, usage.prompt_tokens)
    return usage


def _nobody(*_: Any, **__: Any) -> None:
    """Stands in for the sink of an aborted call."""


def _token_ids(value: Any) -> tuple[int, ...]:
    if isinstance(value, list) and all(isinstance(one, int) and 0 <= one < 2**32 for one in value):
        return tuple(value)
    return ()


def _raw_delta(choice: dict[str, Any], delta: dict[str, Any]) -> bytes:
    """The choice as JSON when it says more than text; empty when it does not."""
    more = any(value not in (None, [], "") for name, value in delta.items() if name not in {"content", "role"})
    more = more or any(value is not None for name, value in choice.items() if name != "delta")
    if not more:
        return b""
    # Not msgspec: it refuses the lone surrogates that half a character leaves; here they become "?".
    return json.dumps({**choice, "delta": delta}, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
