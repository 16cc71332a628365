"""The two forms of a chat completion, as the simulated engine sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from streamway.simulation import words
from streamway.simulation.engine import Begun, Broken, Ended, Event
from streamway.simulation.request import SimulationRequest
from streamway.simulation.sequence import Piece
from streamway.simulation.settings import Faults, WireFaults

_encode = msgspec.json.Encoder().encode
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_AFTER: Final = b'},"finish_reason":null}]}\n\n'

# What the fault `usage` counts instead.
_WRONG: Final[dict[str, dict[str, Any]]] = {
    "negative": {"prompt_tokens": -3, "completion_tokens": -1},
    "words": {"completion_tokens": "a few"},
    "huge": {"completion_tokens": 2**63},
}


class Abort(Protocol):
    """Ends the connection; `gently`: after what was written."""

    def __call__(self, *, gently: bool = False) -> None: ...


class Answer(Protocol):
    """Turns the events of one call into bytes of its response."""

    def deliver(self, event: Event) -> None:
        """Takes the next event."""
        ...


class StreamedAnswer:
    """Server-sent events in chunked encoding, one event a chunk; the finish reason rides on the last piece, as in vLLM."""

    def __init__(
        self,
        id_: str,
        created: int,
        model: str,
        request: SimulationRequest,
        write: Callable[[bytes], None],
        over: Callable[[], None],
        abort: Abort,
    ) -> None:
        self._request = request
        self._over, self._abort = over, abort
        self._wire = request.faults.wire
        self._sent = 0  # tokens
        self._write = _writer(write, request.faults)
        start = {
            "id": id_,
            "object": "chat.completion.chunk",
            "created": created,
            "model": self._wire.model or model,
        }
        self._start = b"data: " + _encode(start)[:-1] + b',"choices":['
        # Around the text of a token in mid-answer, for each choice.
        self._before = [
            b'%b{"index":%d,"delta":{"content":' % (self._start, choice) for choice in range(len(request.choices))
        ]
        self._plain = self._wire == WireFaults() and not request.logprobs

    def deliver(self, event: Event) -> None:
        """Writes the next event."""
        match event:
            case Piece():
                self._piece(event)
            case Begun():
                if self._wire.error_document:
                    self._write(_document(_error(self._wire.error_document)))
                    self._abort(gently=True)
                    return
                self._write(_STREAM_HEAD)
                for choice in range(len(self._request.choices)):
                    self._chunk(b'{"index":%d,"delta":{"role":"assistant","content":""},"finish_reason":null}' % choice)
            case Ended(call):
                usage = words.usage(call.counted, self._request.faults)
                if usage is not None and self._request.include_usage:
                    usage |= _WRONG.get(self._wire.usage, {})
                    self._event(self._start + b'],"usage":' + _encode(usage) + b"}\n\n")
                last = b"data: [DONE]\n\n"
                self._over()
                self._write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
            case Broken(garbage=garbage):
                if garbage:
                    self._event(b'data: {"choices": [oops\n\n')
                self._abort()

    def _piece(self, piece: Piece) -> None:
        if self._plain and not piece.finish_reason and piece.delta is None:
            before, text = self._before[piece.choice], _encode(piece.text)
            size = len(before) + len(text) + len(_AFTER)
            self._write(b"%x\r\n%b%b%b\r\n" % (size, before, text, _AFTER))
            return
        self._sent += 1
        if self._sent == self._wire.error_at_token:
            self._event(b"data: %b\n\n" % _encode(_error("the engine was told to fail here")))
            self._abort(gently=True)
            return
        if self._sent == self._wire.half_event_at_token:
            self._event(self._start + b'{"index":0,"delta":{"cont')
            self._write(b"0\r\n\r\n")
            self._abort(gently=True)
            return
        finish = _encode(piece.finish_reason) if piece.finish_reason else b"null"
        extras = words.choice_extras(piece, logprobs=self._request.logprobs)
        if extras is None:
            inner = b'"delta":{"content":%b}' % _encode(piece.text)
        else:
            inner = _encode(extras)[1:-1]
        self._chunk(b'{"index":%d,%b,"finish_reason":%b}' % (piece.choice, inner, finish))
        for _ in range(self._wire.tokens_after_finish if piece.finish_reason else 0):
            self._chunk(b'{"index":%d,"delta":{"content":" and"},"finish_reason":null}' % piece.choice)

    def _chunk(self, choice: bytes) -> None:
        self._event(b"%b%b]}\n\n" % (self._start, choice))

    def _event(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data))


class CollectedAnswer:
    """One JSON document at the end."""

    def __init__(
        self,
        id_: str,
        created: int,
        model: str,
        request: SimulationRequest,
        write: Callable[[bytes], None],
        over: Callable[[], None],
        abort: Abort,
    ) -> None:
        self._request, self._write, self._over, self._abort = request, write, over, abort
        self._head = {"id": id_, "object": "chat.completion", "created": created, "model": model}
        self._pieces: list[list[Piece]] = [[] for _ in request.choices]

    def deliver(self, event: Event) -> None:
        """Collects, and writes the whole at the end."""
        match event:
            case Piece():
                self._pieces[event.choice].append(event)
            case Ended(call):
                choices = [self._choice(index, pieces) for index, pieces in enumerate(self._pieces)]
                usage = words.usage(call.counted, self._request.faults)
                body = {**self._head, "choices": choices} | ({"usage": usage} if usage else {})
                self._over()
                self._write(_document(body))
            case Broken():
                self._abort()

    def _choice(self, index: int, pieces: list[Piece]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(piece.text for piece in pieces)}
        calls = [piece.delta["tool_calls"][0] for piece in pieces if piece.delta]
        if calls:
            name = calls[0]["function"]["name"]
            arguments = "".join(part["function"]["arguments"] for part in calls)
            function = {"name": name, "arguments": arguments}
            message |= {
                "content": None,
                "tool_calls": [{"id": calls[0]["id"], "type": "function", "function": function}],
            }
        choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": pieces[-1].finish_reason}
        if self._request.logprobs:
            extras = [words.choice_extras(piece, logprobs=True) for piece in pieces]
            choice["logprobs"] = {
                "content": [one["logprobs"]["content"][0] for one in extras if one and "logprobs" in one]
            }
        return choice


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "server_error", "code": 500}}


def _document(body: Any) -> bytes:
    data = _encode(body)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


def _writer(write: Callable[[bytes], None], faults: Faults) -> Callable[[bytes], None]:
    if faults.wire.mute:
        return _nothing
    return _CutWriter(write).write if faults.split_utf8 else write


def _nothing(_: bytes) -> None:
    """The fault `mute`."""


class _CutWriter:
    """The fault `split_utf8`: every write ends inside a code point, if it holds one of more than one byte."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._kept = b""

    def write(self, data: bytes) -> None:
        data = self._kept + data
        if data.endswith(b"0\r\n\r\n"):
            self._write(data)
            return
        # A byte from 0xC0 on begins a code point of several bytes.
        at = next((place for place in range(len(data) - 1, -1, -1) if data[place] >= 0xC0), len(data) - 1) + 1
        self._write(data[:at])
        self._kept = data[at:]
