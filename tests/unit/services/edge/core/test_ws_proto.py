"""The binary subprotocol: total parsing, and events that come out as gRPC has them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Opcode

from services.edge.core import ws_frames
from services.edge.core.commands import BadFrame, Cancel, Live, Open, Ping, Restore, Resume
from services.edge.core.ws_json import JsonDialect
from services.edge.core.ws_proto import ProtoDialect, binary_frame
from services.edge.interfaces import Dialect
from streamway.errors import GoingAway, QueueFull, from_status
from streamway.journal.cursor import START, Cursor
from streamway.v1 import common_pb2, edge_pb2
from tests.unit.services.edge.core.test_ws_frames import read

PROTO: Dialect = ProtoDialect()
ID = "0197a0b0-0000-7000-8000-000000000000"


def frame(**fields: Any) -> bytes:
    return edge_pb2.ClientFrame(**fields).SerializeToString()


def bad(data: str | bytes) -> BadFrame:
    with pytest.raises(BadFrame) as caught:
        PROTO.parse(data, 0)
    return caught.value


def said(data: bytes) -> edge_pb2.ServerFrame:
    [found] = read(data)
    assert found.opcode is Opcode.BINARY
    return edge_pb2.ServerFrame.FromString(found.data)


def asked(**fields: Any) -> common_pb2.GenerationRequest:
    return common_pb2.GenerationRequest(model="m", messages=[common_pb2.Message(role="user", content="hi")], **fields)


def test_every_command_parses() -> None:
    opened = PROTO.parse(frame(open=edge_pb2.OpenFrame(number=7, request=asked(session="s"))), 0)
    assert isinstance(opened, Open)
    assert (opened.id, opened.request.session) == (7, "s")
    assert opened.request.on_disconnect == common_pb2.ON_DISCONNECT_GRACE
    assert PROTO.parse(frame(cancel=edge_pb2.CancelFrame(number=7)), 0) == Cancel(7)
    resume = edge_pb2.ResumeFrame(number=8, generation=ID, after="5-3")
    assert PROTO.parse(frame(resume=resume), 0) == Resume(8, ID, Cursor(5, 3))
    assert PROTO.parse(frame(resume=edge_pb2.ResumeFrame(number=8, generation=ID)), 0) == Resume(8, ID, START)
    restore = edge_pb2.RestoreFrame(restore_id="r", after={ID: "5-3"})
    assert PROTO.parse(frame(restore=restore), 0) == Restore("r", {ID: Cursor(5, 3)})
    assert PROTO.parse(frame(ping=edge_pb2.PingFrame(t=5)), 0) == Ping(5)


@pytest.mark.parametrize(
    ("fields", "number", "param"),
    [
        ({}, 0, "frame"),
        ({"open": edge_pb2.OpenFrame(request=asked())}, 0, "open.number"),
        ({"cancel": edge_pb2.CancelFrame()}, 0, "cancel.number"),
        ({"resume": edge_pb2.ResumeFrame(number=3)}, 3, "resume.generation"),
        ({"resume": edge_pb2.ResumeFrame(number=3, generation=ID, after="7")}, 3, "resume.after"),
        ({"restore": edge_pb2.RestoreFrame()}, 0, "restore_id"),
        ({"restore": edge_pb2.RestoreFrame(restore_id="r", after={"g": "x"})}, 0, "after.g"),
        ({"open": edge_pb2.OpenFrame(number=2, request=asked(tenant="x"))}, 2, "request.tenant"),
        ({"open": edge_pb2.OpenFrame(number=2, request=asked(generation=ID))}, 2, "request.generation"),
        ({"open": edge_pb2.OpenFrame(number=2, request=asked(traceparent="x"))}, 2, "request.traceparent"),
        ({"open": edge_pb2.OpenFrame(number=2, request=asked(session="x" * 257))}, 2, "request.session"),
        (
            {"open": edge_pb2.OpenFrame(number=2, request=asked(idempotency_key="x" * 257))},
            2,
            "request.idempotency_key",
        ),
    ],
)
def test_the_field_at_fault_is_named(fields: dict[str, Any], number: int, param: str) -> None:
    problem = bad(frame(**fields))
    assert (problem.id, problem.error.param) == (number, param)


def test_text_is_refused_on_the_binary_subprotocol_and_the_other_way_round() -> None:
    assert bad("{}").error.name == "malformed"
    with pytest.raises(BadFrame) as caught:
        JsonDialect().parse(b"{}", 0)
    assert caught.value.error.name == "malformed"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_a_documented_error(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        PROTO.parse(data, 0)


@given(st.text(max_size=400), st.integers(1, 2**32 - 1), st.integers(1, 2**53), st.integers(0, 2**53), st.booleans())
def test_an_event_comes_out_as_it_went_in(text: str, number: int, position: int, epoch: int, loose: bool) -> None:
    event = common_pb2.Event(subscription=9, position=position, epoch=epoch, not_durable=loose)
    event.token.text, event.token.units = text, 1
    got = said(PROTO.frames(number).token(event)).event
    assert (got.subscription, got.position, got.epoch, got.not_durable) == (number, position, epoch, loose)
    assert got.token.text == text


@pytest.mark.parametrize("size", [0, 1, 100, 125, 126, 127, 128, 16_383, 16_384, 70_000, 3_000_000])
def test_frames_of_any_length_are_read_back(size: int) -> None:
    event = common_pb2.Event(position=3)
    event.token.text = "x" * size
    assert said(PROTO.frames(1).token(event)).event.token.text == "x" * size
    [found] = read(binary_frame(b"y" * size))
    assert found.data == b"y" * size


def test_what_the_edge_says_of_itself() -> None:
    hello = said(PROTO.hello("r", "s", ["m"], 15000, 30000)).hello
    assert (hello.restore_id, hello.session, list(hello.models)) == ("r", "s", ["m"])
    assert (hello.heartbeat_ms, hello.grace_ms) == (15000, 30000)
    assert said(PROTO.pong(5)).pong.t == 5
    assert said(PROTO.heartbeat).event.HasField("heartbeat")
    refused = said(PROTO.refused(QueueFull("m", 2.0), 4)).refused
    assert (refused.number, from_status(refused.status).name) == (4, "queue_full")
    live = [Live(4, ID, Cursor(5, 3))]
    going = said(PROTO.going_away(GoingAway("edge"), live)).going_away
    assert (going.live[0].number, going.live[0].generation, going.live[0].cursor) == (4, ID, "5-3")
    assert said(PROTO.restored("r", live)).restored.generations[0].cursor == "5-3"


def test_a_restored_generation_keeps_its_name_where_it_is_one() -> None:
    assert PROTO.name_for("7", ID, 0) == 7
    assert PROTO.name_for("q1", ID, 2) == 2**32 - 3
    assert PROTO.name_for("0", ID, 0) == PROTO.name_for("99999999999", ID, 0) == 2**32 - 1
    assert JsonDialect().name_for("7", ID, 0) == "7"
    assert JsonDialect().name_for("", ID, 0) == ID


def test_both_subprotocols_tell_the_same_of_a_resumed_stream() -> None:
    event = common_pb2.Event(generation=ID)
    event.resumed.CopyFrom(common_pb2.Resumed(recovered=False, after="5-3", oldest=4, behind=True))
    [text] = read(JsonDialect().frames("a").other(event, "resumed"))
    assert b'"after":"5-3","epoch":5,"recovered":false,"oldest":4,"behind":true' in text.data
    assert said(PROTO.frames(2).other(event, "resumed")).event.resumed == event.resumed
    event.diverged.CopyFrom(common_pb2.Diverged(at="5-2"))
    [text] = read(JsonDialect().frames("a").other(event, "diverged"))
    assert text.data == b'{"type":"diverged","id":"a","at":"5-2","epoch":5}'
    assert ws_frames.GenerationFrames("a").other(common_pb2.Event(heartbeat=common_pb2.Heartbeat()), "heartbeat") == b""
