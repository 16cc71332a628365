"""Frames that the edge sends on `streamway.v1.json`, as the bytes that go to the socket.

A server's text frame is a header and the payload (RFC 6455 §5.2), unmasked:

    81 05          text, 5 bytes                     payload < 126
    81 7e 01 00    text, 256 bytes                   payload < 65,536
    81 7f 00 … 00  text, 8 bytes of length           longer

They are built by hand: a token is one bytes formatting and one addition.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamway.errors import StreamwayError
from streamway.v1 import common_pb2

_encode: Final = msgspec.json.Encoder().encode
_SHORT: Final = tuple(bytes((0x81, length)) for length in range(126))
PING: Final = b"\x89\x00"


def text_frame(payload: bytes) -> bytes:
    """One complete text frame."""
    length = len(payload)
    if length < 126:
        return _SHORT[length] + payload
    if length < 65_536:
        return b"\x81\x7e" + length.to_bytes(2, "big") + payload
    return b"\x81\x7f" + length.to_bytes(8, "big") + payload


def pong_frame(payload: bytes) -> bytes:
    """The answer to a protocol ping; its payload is at most 125 bytes."""
    return bytes((0x8A, len(payload))) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """A close frame; the reason is cut to the 123 bytes that fit, at a code-point border."""
    text = reason.encode()[:123].decode(errors="ignore").encode()
    return bytes((0x88, len(text) + 2)) + code.to_bytes(2, "big") + text


def json_frame(**fields: Any) -> bytes:
    """A text frame with the fields as a JSON object, in the order given. None is left out."""
    return text_frame(_encode({name: value for name, value in fields.items() if value is not None}))


HEARTBEAT: Final = json_frame(type="heartbeat")


def hello(restore_id: str, session: str, models: list[str], heartbeat_ms: int) -> bytes:
    """The first frame of every connection."""
    return json_frame(
        type="hello", restore_id=restore_id, session=session, models=models, heartbeat_ms=heartbeat_ms, grace_ms=0
    )


def pong(t: float | str | None) -> bytes:
    """The answer to a JSON ping."""
    return text_frame(_encode({"type": "pong", "t": t}))


def going_away(error: StreamwayError) -> bytes:
    """The process stops: what runs goes on for a while, nothing new is taken."""
    return json_frame(
        type="going_away", reason=error.name, message=error.message, retry_after_ms=_ms(error.retry_after_s)
    )


def error(problem: StreamwayError, id_: str = "", delivered_until: int | None = None) -> bytes:
    """An error of one generation, or of the connection when `id_` is empty."""
    return json_frame(
        type="error",
        id=id_ or None,
        reason=problem.name,
        message=problem.message,
        retryable=problem.row.retryable,
        retry_after_ms=_ms(problem.retry_after_s),
        delivered_until=delivered_until,
        field=problem.param,
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


class GenerationFrames:
    """The frames of one generation; `id_` is the client's name for it."""

    __slots__ = ("_id", "_token")

    def __init__(self, id_: str) -> None:
        self._id = id_
        # JSON of an id may hold a percent sign, which the formatting below must not see.
        self._token = b'{"type":"token","id":' + _encode(id_).replace(b"%", b"%%") + b',"choice":%d,"position":%d'

    def accepted(self, event: common_pb2.Event, traceparent: str) -> bytes:
        """The mesh has taken the request."""
        accepted = event.accepted
        return json_frame(
            type="accepted",
            id=self._id,
            generation=event.generation,
            position=event.position,
            queue_position=accepted.queue_position,
            durability="off",
            cursor=accepted.cursor or None,
            worker=accepted.worker or None,
            model=accepted.model,
            session=accepted.session,
            cache=accepted.cache,
            traceparent=traceparent,
        )

    def started(self, event: common_pb2.Event) -> bytes:
        """The engine call has begun."""
        return json_frame(
            type="started",
            id=self._id,
            position=event.position,
            worker=event.started.worker,
            queued_ms=event.started.queued_ms,
        )

    def token(self, event: common_pb2.Event) -> bytes:
        """A piece of the answer, with `choice_finished` behind it where the choice ended. Per-token path."""
        token = event.token
        if token.text or token.raw_delta or not token.HasField("choice_finished"):
            body = self._token % (token.choice, event.position)
            if event.first_position and event.first_position != event.position:
                body += b',"first_position":%d' % event.first_position
            if token.raw_delta:
                body += b',"raw_delta":' + token.raw_delta
            frame = text_frame(body + b',"text":' + _encode(token.text) + b"}")
            if not token.HasField("choice_finished"):
                return frame
            return frame + self._choice_finished(token, None, None)
        # The engine said only that the choice ended: then this frame has the position.
        return self._choice_finished(token, event.position, event.first_position or None)

    def _choice_finished(self, token: common_pb2.Token, position: int | None, first: int | None) -> bytes:
        return json_frame(
            type="choice_finished",
            id=self._id,
            choice=token.choice,
            position=position,
            first_position=first if first != position else None,
            finish_reason=token.choice_finished.finish_reason,
        )

    def taken_over(self, event: common_pb2.Event) -> bytes:
        """Another worker goes on."""
        taken = event.taken_over
        return json_frame(
            type="taken_over", id=self._id, position=event.position, worker=taken.worker, from_worker=taken.from_worker
        )

    def finished(self, event: common_pb2.Event) -> bytes:
        """The generation ended well."""
        finished = event.finished
        usage = finished.usage
        counted = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_prompt_tokens": usage.cached_prompt_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "from_cache": usage.from_cache,
        }
        return json_frame(
            type="finished",
            id=self._id,
            position=event.position,
            finish_reason=finished.finish_reason,
            usage=counted if finished.HasField("usage") else None,
        )

    def error(self, problem: StreamwayError, delivered_until: int) -> bytes:
        """The generation ended badly."""
        return error(problem, self._id, delivered_until)
