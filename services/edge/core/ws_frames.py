"""Frames that the edge sends on `streamway.v1.json`, as the bytes that go to the socket, and their JSON for plain HTTP.

A server's text frame is a header and the payload (RFC 6455 §5.2), unmasked:

    81 05          text, 5 bytes                     payload < 126
    81 7e 01 00    text, 256 bytes                   payload < 65,536
    81 7f 00 … 00  text, 8 bytes of length           longer

They are built by hand: a token is one bytes formatting and one addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from services.edge.core import rate_limits
from services.edge.core.commands import Live
from streamway import cachestatus
from streamway.errors import StreamwayError, from_status
from streamway.journal.cursor import Cursor
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
    text = close_reason(reason)
    return bytes((0x88, len(text) + 2)) + code.to_bytes(2, "big") + text


def close_reason(reason: str) -> bytes:
    """The reason as far as it fits into a close frame."""
    return reason.encode()[:123].decode(errors="ignore").encode()


def json_object(**fields: Any) -> bytes:
    """The fields as a JSON object, in the order given. None is left out."""
    return _encode({name: value for name, value in fields.items() if value is not None})


def json_frame(**fields: Any) -> bytes:
    """The same as a text frame."""
    return text_frame(json_object(**fields))


HEARTBEAT: Final = json_frame(type="heartbeat")


_DURABILITY: Final = {common_pb2.DURABILITY_RELAXED: "relaxed", common_pb2.DURABILITY_STRICT: "strict"}


def hello(restore_id: str, session: str, models: list[str], heartbeat_ms: int, grace_ms: int) -> bytes:
    """The first frame of every connection."""
    return json_frame(
        type="hello",
        restore_id=restore_id,
        session=session,
        models=models,
        heartbeat_ms=heartbeat_ms,
        grace_ms=grace_ms,
    )


def pong(t: float | str | None) -> bytes:
    """The answer to a JSON ping."""
    return text_frame(_encode({"type": "pong", "t": t}))


def going_away(error: StreamwayError, live: Sequence[Live] = ()) -> bytes:
    """The process, or this connection, ends: what runs goes on for a while, nothing new is taken; `live` can be resumed."""
    return text_frame(going_away_object(error, live))


def going_away_object(error: StreamwayError, live: Sequence[Live]) -> bytes:
    """The same without the frame."""
    return json_object(
        type="going_away",
        reason=error.name,
        message=error.message,
        retry_after_ms=_ms(error.retry_after_s),
        live=_listed(live),
    )


def restored(restore_id: str, live: Sequence[Live]) -> bytes:
    """What a restored connection had; the `resumed` of each follows."""
    return json_frame(type="restored", restore_id=restore_id, generations=_listed(live))


def _listed(live: Sequence[Live]) -> list[dict[str, Any]]:
    return [{"id": each.id, "generation": each.generation, "cursor": str(each.cursor)} for each in live]


def error(problem: StreamwayError, id_: str = "", delivered_until: int | None = None) -> bytes:
    """An error of one generation, or of the connection when `id_` is empty."""
    return text_frame(error_object(problem, id_, delivered_until))


def error_object(problem: StreamwayError, id_: str = "", delivered_until: int | None = None) -> bytes:
    """The same without the frame."""
    return json_object(
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


class GenerationJson:
    """The events of one generation as JSON objects; `id_` is the client's name for it.

    They say positions; only those that may change the epoch say it too, so that the client has its cursor from both.
    """

    __slots__ = ("_id", "_token")

    def __init__(self, id_: str) -> None:
        self._id = id_
        # JSON of an id may hold a percent sign, which the formatting below must not see.
        self._token = b'{"type":"token","id":' + _encode(id_).replace(b"%", b"%%") + b',"choice":%d,"position":%d'

    def other(self, event: common_pb2.Event, kind: str, traceparent: str = "") -> bytes:
        """Anything but a token; empty for what clients are not told."""
        if kind == "accepted":
            return self.accepted(event, traceparent)
        if kind == "error":
            return self.error(from_status(event.error.status), event.error.delivered_until)
        if kind in ("started", "taken_over", "resumed", "diverged", "finished"):
            frame: bytes = getattr(self, kind)(event)
            return frame
        return b""

    def accepted(self, event: common_pb2.Event, traceparent: str) -> bytes:
        """The mesh has taken the request."""
        accepted = event.accepted
        return json_object(
            type="accepted",
            id=self._id,
            generation=event.generation,
            position=event.position,
            queue_position=accepted.queue_position,
            durability=_DURABILITY.get(accepted.durability, "off"),
            cursor=accepted.cursor or None,
            worker=accepted.worker or None,
            route=accepted.route or None,
            reason=accepted.reason or None,
            model=accepted.model,
            session=accepted.session,
            cache=accepted.cache,
            cache_hit=cachestatus.of_event(accepted),
            attached_to=accepted.attached_to or None,
            follows=accepted.follows or None,
            lowered_priority=accepted.lowered_priority if accepted.HasField("lowered_priority") else None,
            allowance=rate_limits.of_event(accepted),
            traceparent=traceparent or None,
        )

    def started(self, event: common_pb2.Event) -> bytes:
        """The engine call has begun."""
        return json_object(
            type="started",
            id=self._id,
            position=event.position,
            epoch=event.epoch,
            worker=event.started.worker or None,
            queued_ms=event.started.queued_ms,
            cache=event.started.cache or None,
            cache_hit=cachestatus.of_event(event.started),
        )

    def piece(self, event: common_pb2.Event, token: common_pb2.Token) -> bytes:
        """A piece of the answer; `token` is the event's. Per-token path."""
        body = self._token % (token.choice, event.position)
        first = event.first_position
        if first and first != event.position:
            body += b',"first_position":%d' % first
        if token.raw_delta:
            body += b',"raw_delta":' + token.raw_delta
        if event.not_durable:
            body += b',"not_durable":true'
        return body + b',"text":' + _encode(token.text) + b"}"

    def last_piece(self, event: common_pb2.Event, token: common_pb2.Token) -> list[bytes]:
        """The piece with which a choice ended, if there is one, and that it did. Without a piece that has the position."""
        alone = not token.text and not token.raw_delta
        first = event.first_position or None
        end = json_object(
            type="choice_finished",
            id=self._id,
            choice=token.choice,
            position=event.position if alone else None,
            first_position=first if alone and first != event.position else None,
            finish_reason=token.choice_finished.finish_reason,
            truncated=token.choice_finished.truncated or None,
        )
        return [end] if alone else [self.piece(event, token), end]

    def taken_over(self, event: common_pb2.Event) -> bytes:
        """Another worker goes on."""
        taken = event.taken_over
        return json_object(
            type="taken_over",
            id=self._id,
            position=event.position,
            epoch=event.epoch,
            worker=taken.worker,
            from_worker=taken.from_worker,
        )

    def resumed(self, event: common_pb2.Event) -> bytes:
        """What became of the cursor."""
        resumed, after = event.resumed, event.resumed.after
        # By hand: a thousand of these are written before the last of a crowd has its first token.
        return b'{"type":"resumed","id":%b,"generation":%b,"after":"%b"%b,"recovered":%b,"oldest":%d%b}' % (
            _encode(self._id),
            _encode(event.generation),
            after.encode(),
            b',"epoch":%b' % after.partition("-")[0].encode() if after else b"",
            b"true" if resumed.recovered else b"false",
            resumed.oldest,
            b',"behind":true' if resumed.behind else b"",
        )

    def diverged(self, event: common_pb2.Event) -> bytes:
        """The text beyond `at` is no longer part of the answer; what follows replaces it."""
        return json_object(type="diverged", id=self._id, at=event.diverged.at, epoch=_epoch(event.diverged.at))

    def finished(self, event: common_pb2.Event) -> bytes:
        """The generation ended well."""
        finished = event.finished
        usage = finished.usage
        counted: dict[str, int | float] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_prompt_tokens": usage.cached_prompt_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "from_cache": usage.from_cache,
        }
        if usage.estimated:
            counted["estimated"] = True
        if usage.HasField("cost"):
            counted["cost"] = usage.cost
        return json_object(
            type="finished",
            id=self._id,
            position=event.position,
            finish_reason=finished.finish_reason,
            truncated=finished.truncated or None,
            usage=counted if finished.HasField("usage") else None,
        )

    def error(self, problem: StreamwayError, delivered_until: int) -> bytes:
        """The generation ended badly."""
        return error_object(problem, self._id, delivered_until)


class GenerationFrames:
    """The same as frames of a WebSocket."""

    __slots__ = ("_json", "_piece")

    def __init__(self, id_: str) -> None:
        self._json = GenerationJson(id_)
        self._piece = self._json.piece

    def token(self, event: common_pb2.Event) -> bytes:
        """A piece of the answer, with `choice_finished` behind it where the choice ended. Per-token path."""
        token = event.token
        if token.HasField("choice_finished"):
            return b"".join(map(text_frame, self._json.last_piece(event, token)))
        return text_frame(self._piece(event, token))

    def other(self, event: common_pb2.Event, kind: str, traceparent: str = "") -> bytes:
        """Anything else; empty for what clients are not told."""
        body = self._json.other(event, kind, traceparent)
        return text_frame(body) if body else b""


def _epoch(cursor: str) -> int | None:
    return Cursor.parse(cursor).epoch if cursor else None
