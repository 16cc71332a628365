from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.wire import epoch_head, generation_stamp, head, plain_token, subscription_stamp
from streamway.v1 import common_pb2, inference_pb2


def event(text: str) -> common_pb2.Event:
    return common_pb2.Event(epoch=7, position=3, token=common_pb2.Token(text=text, units=1))


def joined(stamp: bytes, texts: list[str]) -> bytes:
    parts = []
    for text in texts:
        raw = event(text).SerializeToString()
        parts += [head(len(stamp) + len(raw)), stamp, raw]
    return b"".join(parts)


@given(st.integers(0, 2**32 - 1), st.lists(st.text(max_size=300), max_size=5))
def test_a_joined_batch_is_the_message_that_protobuf_would_make(number: int, texts: list[str]) -> None:
    expected = inference_pb2.AttachResponse(events=[event(text) for text in texts])
    for each in expected.events:
        each.subscription = number
    assert inference_pb2.AttachResponse.FromString(joined(subscription_stamp(number), texts)) == expected


@pytest.mark.parametrize("length", [0, 1, 100, 127, 128, 511, 512, 16_383, 16_384, 3_000_000])
def test_every_length_is_told_right(length: int) -> None:
    name = "01a228c3-6874-72b9-ac33-bab34ae46f12"
    raw = joined(generation_stamp(name), ["x" * length, "y"])
    first, second = inference_pb2.InferenceServiceGenerateResponse.FromString(raw).events
    assert (first.generation, first.token.text) == (name, "x" * length)
    assert (second.generation, second.token.text) == (name, "y")


_NUMBERS = st.one_of(
    st.integers(0, 300), st.sampled_from([127, 128, 4095, 4096, 16_383, 16_384]), st.integers(0, 2**32 - 1)
)


@given(_NUMBERS, _NUMBERS, _NUMBERS, st.text(min_size=1, max_size=300), _NUMBERS, _NUMBERS)
def test_a_plain_token_has_the_bytes_that_protobuf_writes(
    epoch: int, first: int, position: int, text: str, index: int, units: int
) -> None:
    position, units = max(first, position) + 1, units + 1
    told = common_pb2.Token(text=text, first_token_index=index, units=units % 2**32 or 1)
    wanted = common_pb2.Event(epoch=epoch, position=position, first_position=first, token=told)
    made = plain_token(epoch_head(epoch), first, position, text, index, told.units)
    assert made == wanted.SerializeToString(deterministic=True)
