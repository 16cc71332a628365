"""Batches, the bound, the end."""

from __future__ import annotations

import asyncio

import pytest

from services.router.io.outbox import Outbox
from streamway.errors import SlowConsumer
from streamway.v1 import common_pb2, router_pb2
from tests.support.inference_service import token


def _positions(batch: list[common_pb2.Event] | None) -> list[int]:
    return [event.position for event in batch or []]


async def test_what_waits_comes_as_one_batch() -> None:
    outbox = Outbox(100_000)
    outbox.put([token(1, "a"), token(2, "b")])
    outbox.put([token(3, "c")])
    assert _positions(await outbox.take()) == [1, 2, 3]


async def test_a_batch_is_bounded_in_events_and_bytes() -> None:
    outbox = Outbox(100_000_000)
    outbox.put([token(number, "x") for number in range(1, 701)])
    assert len(await outbox.take() or []) == 500
    assert len(await outbox.take() or []) == 200
    outbox.put([token(number, "x" * 600_000) for number in range(1, 4)])
    assert _positions(await outbox.take()) == [1, 2]
    assert _positions(await outbox.take()) == [3]


async def test_an_idle_reader_gets_an_empty_batch() -> None:
    assert await Outbox(1000).take(0.01) == []


async def test_a_reader_that_waits_is_woken() -> None:
    outbox = Outbox(1000)
    asyncio.get_running_loop().call_later(0.01, outbox.put, [token(1, "a")])
    assert _positions(await outbox.take(5)) == [1]


async def test_after_the_end_the_rest_comes_and_then_nothing() -> None:
    outbox = Outbox(1000)
    outbox.put([token(1, "a")])
    outbox.end()
    outbox.put([token(2, "late")])
    assert _positions(await outbox.take()) == [1]
    assert await outbox.take() is None


async def test_over_the_limit_all_is_dropped_at_once_and_the_reader_is_told() -> None:
    outbox = Outbox(1000)
    calls: list[int] = []
    outbox.overflowed = lambda: calls.append(1)
    outbox.put([token(1, "x" * 5000)])
    assert calls == [], "a single event may be larger than the limit"
    outbox.put([token(2, "x")])
    assert calls == [1]
    outbox.put([token(3, "x")])
    assert calls == [1]
    with pytest.raises(SlowConsumer):
        await outbox.take()


async def test_answers_ride_with_the_next_batch_and_outlive_the_end() -> None:
    outbox = Outbox(10_000)
    outbox.answer(router_pb2.Located(number=1))
    assert await outbox.take() == []
    assert [answer.number for answer in outbox.answers()] == [1]
    for number in range(1500):
        outbox.answer(router_pb2.Located(number=number))
    outbox.end()
    outbox.answer(router_pb2.Located(number=9999))
    numbers = []
    while await outbox.take() is not None:
        numbers += [answer.number for answer in outbox.answers()]
    assert numbers == list(range(1500))
