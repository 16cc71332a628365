"""What a client says of a kept conversation, on each surface."""

from __future__ import annotations

import pytest

from services.edge.core import kept_context, ws_protocol
from streamway.errors import InvalidArgument
from streamway.v1 import common_pb2


def test_the_header_says_start_or_append_and_the_session_id_names_it() -> None:
    for text, use in (("start", common_pb2.CONTEXT_USE_START), (" Append ", common_pb2.CONTEXT_USE_APPEND)):
        request = common_pb2.GenerationRequest()
        kept_context.by_header(request, text, "chat-7")
        assert (request.context.use, request.context.id) == (use, "chat-7")
    silent = common_pb2.GenerationRequest()
    kept_context.by_header(silent, "", "chat-7")
    assert not silent.HasField("context")


@pytest.mark.parametrize("text", ["keep", "true", "0", "startappend"])
def test_another_word_is_refused_and_not_taken_for_nothing(text: str) -> None:
    with pytest.raises(InvalidArgument) as wrong:
        kept_context.by_header(common_pb2.GenerationRequest(), text, "chat-7")
    assert wrong.value.param == "x-streamway-context"


def test_a_context_needs_a_name_of_the_clients_own_of_at_most_64_bytes() -> None:
    for session in ("", "x" * 65, "é" * 33):
        request = common_pb2.GenerationRequest()
        with pytest.raises(InvalidArgument) as wrong:
            kept_context.by_header(request, "start", session)
        assert wrong.value.param == "context"
    kept_context.by_header(common_pb2.GenerationRequest(), "start", "é" * 32)


def test_a_frame_names_it_by_its_own_session_before_the_connections() -> None:
    frame = b'{"type":"open","id":"a","model":"m","messages":[{"role":"user","content":"x"}],"context":"append"%s}'
    for extra, id_ in ((b"", "connection"), (b',"session":"own"', "own")):
        command = ws_protocol.parse((frame % extra).decode())
        assert isinstance(command, ws_protocol.OpenFrame)
        request = ws_protocol.to_request(command, 0)
        kept_context.name(request, request.session or "connection")
        assert (request.context.id, request.context.use) == (id_, common_pb2.CONTEXT_USE_APPEND)


def test_half_a_surrogate_pair_is_a_name_that_protobuf_can_carry() -> None:
    request = common_pb2.GenerationRequest()
    kept_context.by_header(request, "start", "a\udc80")
    assert request.context.id == "a?"
