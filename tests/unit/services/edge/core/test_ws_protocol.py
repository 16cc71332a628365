"""Frames of a client: total parsing, and errors that name what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.edge.core.commands import BadFrame
from services.edge.core.ws_protocol import (
    CancelFrame,
    OpenFrame,
    PingFrame,
    RestoreFrame,
    ResumeFrame,
    parse,
    to_request,
)
from streamway.errors import InvalidArgument, Malformed
from streamway.v1 import common_pb2

OPEN: dict[str, Any] = {"type": "open", "id": "a", "model": "m", "messages": [{"role": "user", "content": "hi"}]}


def bad(frame: Any) -> BadFrame:
    with pytest.raises(BadFrame) as caught:
        parse(frame if isinstance(frame, str) else json.dumps(frame))
    return caught.value


def test_every_command_parses() -> None:
    assert isinstance(parse(json.dumps(OPEN)), OpenFrame)
    assert parse('{"type":"cancel","id":"a"}') == CancelFrame(id="a")
    assert parse('{"type":"resume","id":"a","generation":"g"}') == ResumeFrame(id="a", generation="g", after="0-0")
    assert parse('{"type":"restore","restore_id":"r","after":{"g":"0-1"}}') == RestoreFrame("r", {"g": "0-1"})
    assert parse('{"type":"ping","t":1.5}') == PingFrame(t=1.5)
    assert parse('{"type":"ping"}') == PingFrame()


def test_all_optional_fields_reach_the_request() -> None:
    frame = parse(
        json.dumps(
            {
                **OPEN,
                "params": {
                    "temperature": 0,
                    "top_p": 1,
                    "top_k": 40,
                    "min_p": 0.5,
                    "presence_penalty": -2,
                    "frequency_penalty": 2,
                    "seed": -5,
                    "n": 2,
                    "max_tokens": 9,
                    "stop": "x",
                },
                "session": "s",
                "priority": -128,
                "deadline_ms": 500,
                "cache": "exact",
                "durability": "strict",
                "on_disconnect": "cancel",
                "idempotency_key": "k",
            }
        )
    )
    assert isinstance(frame, OpenFrame)
    request = to_request(frame, 1_000)
    assert request.deadline_unix_ms == 1_500
    assert request.cache == common_pb2.CACHE_POLICY_EXACT
    assert request.sampling.HasField("temperature")
    assert request.sampling.temperature == 0
    assert request.sampling.n == 2
    assert request.limits.max_tokens == 9
    assert list(request.limits.stop) == ["x"]
    assert request.priority == -128
    assert request.durability == common_pb2.DURABILITY_STRICT
    assert request.on_disconnect == common_pb2.ON_DISCONNECT_CANCEL
    assert (request.session, request.idempotency_key) == ("s", "k")


def test_absent_parameters_stay_absent() -> None:
    frame = parse(json.dumps(OPEN))
    assert isinstance(frame, OpenFrame)
    request = to_request(frame, 0)
    assert not request.sampling.HasField("temperature")
    assert not request.limits.HasField("max_tokens")
    assert request.deadline_unix_ms == 0
    assert request.durability == common_pb2.DURABILITY_UNSPECIFIED
    assert request.on_disconnect == common_pb2.ON_DISCONNECT_GRACE


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"surprise": 1}, "surprise"),
        ({"params": {"temp": 1}}, "params.temp"),
        ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0].mood"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"priority": 128}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"priority": True}, "priority"),
        ({"deadline_ms": 0}, "deadline_ms"),
        ({"cache": "similar"}, "cache"),
        ({"durability": "firm"}, "durability"),
        ({"on_disconnect": "stay"}, "on_disconnect"),
        ({"params": {"temperature": 2.1}}, "params.temperature"),
        ({"params": {"n": 0}}, "params.n"),
        ({"params": {"n": 17}}, "params.n"),
        ({"params": {"max_tokens": -1}}, "params.max_tokens"),
        ({"params": {"stop": [""]}}, "params.stop[0]"),
        ({"params": {"seed": 2**63}}, "params.seed"),
    ],
)
def test_the_field_at_fault_is_named(change: dict[str, Any], field: str) -> None:
    problem = bad({**OPEN, **change})
    assert problem.id == "a"
    assert isinstance(problem.error, InvalidArgument)
    assert problem.error.param == field


def test_an_unknown_type_lists_the_known_ones() -> None:
    assert "open, cancel, resume, restore, ping" in bad({"type": "subscribe", "id": "x"}).error.message
    assert bad({"type": "subscribe", "id": "x"}).id == "x"
    assert "missing" in bad({"id": "x"}).error.message
    assert "not a string" in bad({"type": {}, "id": "x"}).error.message


@pytest.mark.parametrize("text", ["", "{", "nope", '{"type":"open"', "\x00", '{"type":"ping"}x'])
def test_what_is_not_json_is_malformed(text: str) -> None:
    assert isinstance(bad(text).error, Malformed)


def test_deep_nesting_is_refused_without_following_it() -> None:
    bad('{"type":"ping","t":' + "[" * 100_000)
    bad("[" * 100_000)


def test_an_id_over_its_length_is_refused_without_being_echoed() -> None:
    assert bad({**OPEN, "id": "x" * 65}).id == ""
    assert bad({**OPEN, "id": ""}).id == ""


def test_a_lone_surrogate_is_refused_and_never_reaches_protobuf() -> None:
    text = json.dumps(OPEN).replace("hi", "\\ud83d")
    try:
        frame = parse(text)
    except BadFrame:
        return
    assert isinstance(frame, OpenFrame)
    to_request(frame, 0)
