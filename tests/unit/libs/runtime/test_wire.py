"""Messages put together without message objects are those that protobuf writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamway.runtime.wire import part, repeated, varint
from streamway.v1 import common_pb2, router_pb2

REQUESTS = st.builds(
    common_pb2.GenerationRequest,
    generation=st.text(max_size=40),
    messages=st.lists(st.builds(common_pb2.Message, role=st.just("user"), content=st.text(max_size=300)), max_size=3),
)


@given(st.lists(st.tuples(REQUESTS, st.text(max_size=10)), max_size=5))
def test_a_batch_of_commands_is_what_protobuf_makes_of_it(
    opens: list[tuple[common_pb2.GenerationRequest, str]],
) -> None:
    made = router_pb2.ConnectRequest(
        commands=[
            router_pb2.ConnectCommand(open=router_pb2.Open(request=request, failed_leader=failed))
            for request, failed in opens
        ]
    )
    commands = [
        part(
            router_pb2.ConnectCommand.OPEN_FIELD_NUMBER,
            part(router_pb2.Open.REQUEST_FIELD_NUMBER, request.SerializeToString()),
            router_pb2.Open(failed_leader=failed).SerializeToString(),
        )
        for request, failed in opens
    ]
    assert router_pb2.ConnectRequest.FromString(repeated(1, commands)) == made


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_lengths_of_every_width(size: int) -> None:
    message = common_pb2.Message(content="x" * size)
    assert part(common_pb2.Message.CONTENT_FIELD_NUMBER, b"x" * size) in (
        message.SerializeToString(),
        # What is empty is not written by protobuf, and is the same when it is read.
        message.SerializeToString() + b"\x12\x00",
    )


@given(st.integers(0, 2**63 - 1))
def test_numbers(number: int) -> None:
    encoded = common_pb2.Event(position=number).SerializeToString()
    assert encoded == (bytes([common_pb2.Event.POSITION_FIELD_NUMBER << 3]) + varint(number) if number else b"")
