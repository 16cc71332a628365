"""Subscriptions and the outbox of one stream, without gRPC."""

from __future__ import annotations

import asyncio

import pytest

from services.inference_adapter.core.memory import Memory
from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.io.fanout.outbox import BATCH_EVENTS, Outbox
from services.inference_adapter.io.fanout.subscription import Subscription
from streamway.errors import SlowConsumer, from_status
from streamway.runtime.clock import SystemClock
from streamway.v1 import common_pb2, inference_pb2
from streamway.v1.inference_pb2 import View
from tests.support.serialised import serialised


class Room:
    """A memory, an outbox and transcripts that grow."""

    def __init__(self, limit_bytes: int = 1 << 30, generation_bytes: int = 1 << 30) -> None:
        self.memory = Memory(
            most_bytes=1 << 30, most_ended=100, generation_bytes=generation_bytes, ended_ttl_s=60, most_gone=9
        )
        self.outbox = Outbox(limit_bytes)
        self.numbers = 0

    def transcript(self, id_: str) -> Transcript:
        return self.memory.open(id_, "acme", 0.0)

    def reader(self, transcript: Transcript, after: int = 0, view: View.ValueType = View.VIEW_LIVE) -> Subscription:
        self.numbers += 1
        made = Subscription(
            self.outbox, SystemClock(), self.numbers, transcript.generation, tenant=None, after=after, view=view
        )
        self.outbox.add(made)
        made.bind(transcript)
        return made

    def grow(self, transcript: Transcript, *events: common_pb2.Event, end: bool = False, now: float = 0.0) -> None:
        if end:
            self.memory.end(transcript, now)
        added = self.memory.keep(transcript, serialised(*events), now)
        for reader in transcript.readers[:]:
            reader.grown(added)

    def batch(self) -> list[tuple[int, int]]:
        """The next batch as (subscription, position)."""
        response = inference_pb2.AttachResponse.FromString(self.outbox.batch())
        return [(event.subscription, event.position) for event in response.events]


def token(position: int, text: str = "x") -> common_pb2.Event:
    return common_pb2.Event(position=position, token=common_pb2.Token(text=text, units=1))


def finished(position: int) -> common_pb2.Event:
    return common_pb2.Event(position=position, finished=common_pb2.Finished())


def test_one_batch_holds_what_is_new_of_every_subscription() -> None:
    room = Room()
    one, other = room.transcript("a"), room.transcript("b")
    room.reader(one)
    room.reader(other)
    room.reader(one)
    room.grow(one, token(2))
    room.grow(other, token(2))
    room.grow(one, token(3))
    assert room.batch() == [(1, 2), (1, 3), (3, 2), (3, 3), (2, 2)]
    assert room.outbox.idle
    assert room.batch() == []


def test_a_batch_is_bounded_in_events_and_subscriptions_take_turns() -> None:
    room = Room()
    long, short = room.transcript("a"), room.transcript("b")
    room.grow(long, *(token(position) for position in range(2, 2502)))
    room.reader(long)
    room.reader(short)
    room.grow(short, token(2))
    sizes = []
    first = room.batch()
    sizes.append(len(first))
    second = room.batch()
    sizes.append(len(second))
    third = room.batch()
    sizes.append(len(third))
    assert sizes == [BATCH_EVENTS, BATCH_EVENTS, 501]
    assert second[0] == (2, 2)
    assert [position for number, position in first + second + third if number == 1] == list(range(2, 2502))


def test_a_batch_is_bounded_in_bytes_and_a_larger_event_goes_alone() -> None:
    room = Room()
    transcript = room.transcript("a")
    room.reader(transcript)
    room.grow(transcript, token(2, "x" * 600_000), token(3, "x" * 600_000), token(4, "x" * 3_000_000), token(5))
    assert [room.batch() for _ in range(4)] == [[(1, 2)], [(1, 3)], [(1, 4)], [(1, 5)]]


def test_what_ended_leaves_the_outbox() -> None:
    room = Room()
    transcript = room.transcript("a")
    subscription = room.reader(transcript)
    assert transcript.live == 1
    room.grow(transcript, token(2), finished(3), end=True)
    assert room.batch() == [(1, 2), (1, 3)]
    assert room.outbox.subscriptions == {}
    assert transcript.readers == []
    assert not subscription.bound


async def test_past_the_limit_everything_is_dropped_and_the_stream_ends() -> None:
    room = Room(limit_bytes=100_000)
    one, other = room.transcript("a"), room.transcript("b")
    room.reader(one)
    room.reader(other)
    for position in range(2, 30):
        room.grow(one, token(position, "x" * 10_000))
    with pytest.raises(SlowConsumer):
        await room.outbox.wait()
    assert one.readers == other.readers == []
    assert one.live == other.live == 0


async def test_what_was_sent_or_unsubscribed_counts_no_more() -> None:
    room = Room(limit_bytes=100_000)
    transcript = room.transcript("a")
    room.reader(transcript)
    for position in range(2, 60):
        room.grow(transcript, token(position, "x" * 10_000))
        room.batch()
    for number in range(2, 60):
        room.reader(transcript)
        room.grow(transcript, token(60 + number, "x" * 10_000))
        room.outbox.remove(number)
        room.batch()
    assert room.outbox.error is None


async def test_what_a_reader_asks_for_again_is_not_held_against_it() -> None:
    room = Room(limit_bytes=100_000)
    transcript = room.transcript("a")
    for position in range(2, 60):
        room.grow(transcript, token(position, "x" * 10_000))
    room.reader(transcript)
    assert await room.outbox.wait()
    assert [position for _, position in room.batch()] == list(range(2, 60))


async def test_a_reader_whose_events_were_dropped_is_told_how_far_it_got() -> None:
    room = Room(generation_bytes=50_000)
    transcript = room.transcript("a")
    room.reader(transcript)
    room.grow(transcript, token(2), token(3))
    room.batch()
    for position in range(4, 40):
        room.grow(transcript, token(position, "x" * 10_000))
    response = inference_pb2.AttachResponse.FromString(room.outbox.batch())
    (event,) = response.events
    assert from_status(event.error.status).name == "events_expired"
    assert (event.position, event.error.delivered_until) == (4, 3)
    assert transcript.live == 0
    assert room.outbox.subscriptions == {}


async def test_a_stream_without_commands_ends_with_its_last_subscription() -> None:
    room = Room()
    transcript = room.transcript("a")
    room.reader(transcript)
    room.outbox.no_more_commands()
    waiting = asyncio.get_running_loop().create_task(room.outbox.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    room.grow(transcript, finished(2), end=True)
    assert await waiting
    room.batch()
    assert not await room.outbox.wait()


async def test_a_sign_of_life_is_sent_only_into_silence() -> None:
    room = Room()
    transcript = room.transcript("a")
    room.reader(transcript)
    room.grow(transcript, token(2))
    room.batch()
    room.outbox.heartbeat()
    assert room.outbox.idle
    waiting = asyncio.get_running_loop().create_task(room.outbox.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    room.outbox.heartbeat()
    assert await waiting
    assert room.batch() == []


@pytest.mark.parametrize("view", [View.VIEW_COMPLETE, View.VIEW_OUTCOME])
def test_a_view_after_the_end_sends_nothing_before_and_keeps_nothing_alive(view: View.ValueType) -> None:
    room = Room()
    transcript = room.transcript("a")
    room.reader(transcript, view=view)
    room.grow(transcript, token(2))
    assert room.outbox.idle
    assert transcript.live == 0
    room.grow(transcript, token(3), finished(4), end=True)
    assert room.batch() == ([(1, 2), (1, 3), (1, 4)] if view == View.VIEW_COMPLETE else [(1, 4)])


def test_a_reader_that_has_the_end_already_gets_nothing() -> None:
    room = Room()
    transcript = room.transcript("a")
    room.grow(transcript, finished(2), end=True)
    room.reader(transcript, after=2)
    assert room.batch() == []
    assert room.outbox.subscriptions == {}


def test_who_stores_an_answer_is_told_when_each_event_was_given_out_and_nobody_else() -> None:
    room = Room()
    transcript = room.transcript("a")
    room.reader(transcript, after=1, view=View.VIEW_COMPLETE)
    room.reader(transcript, after=1)
    room.grow(transcript, token(2), now=1.5)
    room.grow(transcript, token(3), token(4), now=1.512)
    room.grow(transcript, finished(5), end=True, now=1.9)
    late = room.reader(transcript, after=2, view=View.VIEW_COMPLETE)
    response = inference_pb2.AttachResponse.FromString(room.outbox.batch())
    offsets: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    for event in response.events:
        offsets[event.subscription].append((event.position, event.offset_ms))
    assert offsets[1] == [(2, 0), (3, 12), (4, 12), (5, 400)]
    assert offsets[2] == [(position, 0) for position in (2, 3, 4, 5)]
    assert offsets[3] == [(3, 0), (4, 0), (5, 388)], "after the first event that it gets"
    assert not late.bound
    assert transcript.readers == []
    assert room.outbox.subscriptions == {}


def test_what_is_no_longer_kept_whole_is_not_told_as_complete() -> None:
    room = Room(generation_bytes=400)
    transcript = room.transcript("a")
    room.reader(transcript, after=1, view=View.VIEW_COMPLETE)
    for position in range(2, 12):
        room.grow(transcript, token(position, "x" * 40))
    room.grow(transcript, finished(12), end=True)
    response = inference_pb2.AttachResponse.FromString(room.outbox.batch())
    assert [event.WhichOneof("event") for event in response.events] in ([], ["error"])
