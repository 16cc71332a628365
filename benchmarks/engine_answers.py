"""The two forms of a chat completion, as the simulated engine sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from streamway.simulation import words
from streamway.simulation.engine import Begun, Broken, Ended, Event
from streamway.simulation.request import SimulationRequest
from streamway.simulation.sequence import Piece

_encode = msgspec.json.Encoder().encode
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)


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
        abort: Callable[[], None],
    ) -> None:
        self._request = request
        self._over, self._abort = over, abort
        self._write = _CutWriter(write).write if request.faults.split_utf8 else write
        start = {"id": id_, "object": "chat.completion.chunk", "created": created, "model": model}
        self._start = b"data: " + _encode(start)[:-1] + b',"choices":['

    def deliver(self, event: Event) -> None:
        """Writes the next event."""
        match event:
            case Piece():
                self._piece(event)
            case Begun():
                self._write(_STREAM_HEAD)
                for choice in range(len(self._request.choices)):
                    self._chunk(b'{"index":%d,"delta":{"role":"assistant","content":""},"finish_reason":null}' % choice)
            case Ended(call):
                usage = words.usage(call.counted, self._request.faults)
                if usage is not None and self._request.include_usage:
                    self._event(self._start + b'],"usage":' + _encode(usage) + b"}\n\n")
                last = b"data: [DONE]\n\n"
                self._over()
                self._write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
            case Broken(garbage=garbage):
                if garbage:
                    self._event(b'data: {"choices": [oops\n\n')
                self._abort()

    def _piece(self, piece: Piece) -> None:
        finish = _encode(piece.finish_reason) if piece.finish_reason else b"null"
        extras = words.choice_extras(piece, logprobs=self._request.logprobs)
        if extras is None:
            inner = b'"delta":{"content":%b}' % _encode(piece.text)
        else:
            inner = _encode(extras)[1:-1]
        self._chunk(b'{"index":%d,%b,"finish_reason":%b}' % (piece.choice, inner, finish))

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
        abort: Callable[[], None],
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
                body = _encode({**self._head, "choices": choices} | ({"usage": usage} if usage else {}))
                self._over()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                self._write(head + body)
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
