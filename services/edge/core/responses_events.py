"""A generation's events as those of an OpenAI response, numbered so that any edge can go on after any of them.

    sequence_number   0 … 3          created, in_progress, output_item.added, content_part.added
                      position + 2   output_text.delta of the piece that ends at this position
                      end + 2 … + 5  output_text.done, content_part.done, output_item.done, completed

Numbers grow and have gaps: a piece may cover several positions, and not every position has a delta. They come from positions
alone, which the store keeps; an `error` event, which is none of the response's own, repeats the number before it, so that a
client can always go on after the last number it saw.

A resumed stream is made from the whole response: what its beginning holds must be known for the end. Only what comes after
`after` is sent.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from services.edge.core.responses_state import ResponseState
from streamway.errors import StreamwayError
from streamway.v1 import common_pb2

_encode: Final = msgspec.json.Encoder().encode
_OPENING: Final = 4
_OFFSET: Final = 2

PING: Final = b": ping\n\n"


def number_of(position: int) -> int:
    """The sequence number of the delta that ends at a position."""
    return position + _OFFSET


class ResponseEvents:
    """Encodes one response. `after`: the last sequence number the client has; −1 for none."""

    __slots__ = ("_after", "_last", "_opened", "_template", "state")

    def __init__(self, state: ResponseState, after: int = -1) -> None:
        self.state = state
        self._after = after
        self._last = after
        self._opened = 0
        self._template = b""

    def mute(self) -> None:
        """Nobody reads the stream any more: what comes is only collected."""
        self._after = sys.maxsize

    def event(self, event: common_pb2.Event, kind: str) -> bytes:
        """What one event of the generation adds to the stream; often nothing. Per-token path."""
        state = self.state
        if kind == "token":
            opening = b""
            if self._opened < _OPENING:
                opening = self._open(_OPENING)
            text = state.token(event)
            number = event.position + _OFFSET
            if number <= self._after or not text:
                return opening
            self._last = number
            return opening + self._template % (number, _encode(text))
        if kind == "accepted":
            state.accepted(event)
            return self._open(1)
        if kind in ("started", "taken_over"):
            state.begun(event)
            return self._open(2)
        if kind == "finished":
            opening = self._open(_OPENING)
            state.finished(event)
            return opening + self._close()
        if kind == "error":
            error = state.failed(event)
            return self._close() if state.ended else self.broken(error)
        return b""

    def whole(self) -> bytes | None:
        """The stream of a response that has ended and of which only the outcome is kept: its text is one delta. None where
        the client may have a part of that text, since it cannot be cut."""
        ended = self.state
        if ended.text and _OPENING <= self._after < number_of(ended.position - 1):
            return None
        self.state = ResponseState(ended.generation, ended.echo)
        made = self._open(_OPENING if ended.spoken else 1)
        self.state = ended
        number = number_of(ended.position - 1)
        if ended.text and number > self._after:
            made += self._template % (number, _encode(ended.text))
        return made + self._close()

    def broken(self, error: StreamwayError) -> bytes:
        """This reading cannot go on, though the response may: the client can come again after the last number."""
        fields = {"code": error.name, "message": error.message, "param": error.param}
        return _sse("error", max(self._last, 0), fields)

    def _open(self, until: int) -> bytes:
        """The opening events before number `until` that were not made yet."""
        made = b""
        while self._opened < until:
            number = self._opened
            self._opened += 1
            if number == 3:
                self._template = self._delta()
            if number > self._after:
                made += self._opening(number)
                self._last = number
        return made

    def _opening(self, number: int) -> bytes:
        state = self.state
        if number == 0:
            return _sse("response.created", 0, {"response": state.object()})
        if number == 1:
            state.working()
            return _sse("response.in_progress", 1, {"response": state.object()})
        if number == 2:
            item = {**state.item(), "status": "in_progress", "content": []}
            return _sse("response.output_item.added", 2, {"output_index": 0, "item": item})
        return _sse("response.content_part.added", 3, {**self._place(), "part": {**state.part(), "text": ""}})

    def _close(self) -> bytes:
        state = self.state
        made = b""
        number = state.position + _OFFSET
        events: list[tuple[str, dict[str, Any]]] = []
        if state.spoken:
            events += [
                ("response.output_text.done", {**self._place(), "text": state.text, "logprobs": []}),
                ("response.content_part.done", {**self._place(), "part": state.part()}),
                ("response.output_item.done", {"output_index": 0, "item": state.item()}),
            ]
        # OpenAI streams have no event for a response that was cancelled: its status says so.
        last = {"completed": "response.completed", "failed": "response.failed"}.get(state.status, "response.incomplete")
        events.append((last, {"response": state.object()}))
        for offset, (kind, fields) in enumerate(events):
            if number + offset > self._after:
                made += _sse(kind, number + offset, fields)
                self._last = number + offset
        return made

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.state.item_id, "output_index": 0, "content_index": 0}

    def _delta(self) -> bytes:
        kind = "response.output_text.delta"
        place = _encode({**self._place(), "logprobs": []})[1:-1].replace(b"%", b"%%")
        name = kind.encode()
        return (
            b"event: " + name + b'\ndata: {"type":"' + name + b'","sequence_number":%d,' + place + b',"delta":%b}\n\n'
        )


def _sse(kind: str, number: int, fields: dict[str, Any]) -> bytes:
    data = _encode({"type": kind, "sequence_number": number, **fields})
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
