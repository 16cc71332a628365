"""The inference-adapter on a real Valkey and a real gRPC channel: lanes, readers, cancels."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from redis.asyncio import Redis

from streamway.runtime.ids import new_generation_id
from streamway.valkey import keys
from tests.support.adapter_world import (
    WORKER,
    assert_tile,
    attached,
    enqueue,
    eventually,
    kinds,
    reason,
    request,
    running_adapter,
    state_of,
    text,
    unfinished,
)
from tests.support.scripted_engine import ScriptedEngine
from tests.support.valkey_server import ValkeyServer


async def test_a_task_goes_from_its_lane_through_the_engine_to_its_reader(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("Hel", "lo", " world"))
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        events = await stream.all(await stream.subscribe(generation, after=1))
        assert kinds(events)[0] == "started"
        assert events[0].started.worker == WORKER
        assert text(events) == "Hello world"
        assert_tile(events)
        tokens = [event.token for event in events if event.HasField("token")]
        assert [t.choice_finished.finish_reason for t in tokens if t.HasField("choice_finished")] == ["stop"]
        assert events[-1].finished.usage.completion_tokens == 1
        assert len({event.epoch for event in events}) == 1
        assert events[0].epoch >> 20 == 1
        await eventually(lambda: unfinished(valkey), 0)
        assert await state_of(valkey, generation) == "finished"
        assert await valkey.pttl(keys.generation(generation)) > 0


async def test_i4_what_was_added_before_the_worker_came_is_worked_through(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    generations = [await enqueue(valkey, request(str(number))) for number in range(20)]
    engine = ScriptedEngine(slots=2, answer=("yes",))
    async with running_adapter(valkey_server.url, engine, preload_depth=1) as adapter, attached(adapter) as stream:
        for generation in generations:
            assert kinds(await stream.all(await stream.subscribe(generation)))[-1] == "finished"
        await eventually(lambda: unfinished(valkey), 0)
    assert sorted(int(call.prompt) for call in engine.calls) == list(range(20))


async def test_a_worker_never_takes_more_than_its_window_is_free(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=2)

    async def taken() -> int:
        return int((await valkey.xpending(keys.lane(WORKER, "gold"), keys.LANE_GROUP))["pending"])

    async with running_adapter(valkey_server.url, engine, preload_depth=3) as adapter, attached(adapter) as stream:
        for number in range(9):
            await stream.subscribe(await enqueue(valkey, request(str(number))))
        await eventually(taken, 5)
        await asyncio.sleep(0.3)
        assert await taken() == 5
        assert [call.prompt for call in engine.calls] == ["0", "1"]
        engine.calls[0].end()
        await engine.next_call(3)
        await eventually(lambda: unfinished(valkey), 8)
        await eventually(taken, 5)


async def test_the_window_starts_higher_classes_and_priorities_first(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine, preload_depth=8) as adapter, attached(adapter) as stream:
        for prompt, priority in (("first", 0), ("bulk", -5), ("normal", 0), ("urgent", 7), ("normal, later", 0)):
            await stream.subscribe(await enqueue(valkey, request(prompt, priority=priority)))
            if prompt == "first":
                await engine.next_call()
        load = adapter.window
        await eventually(lambda: load.waiting, 4)
        for number in range(1, 6):
            (await engine.next_call(number)).end()
    assert [call.prompt for call in engine.calls] == ["first", "urgent", "normal", "normal, later", "bulk"]


async def test_a_reader_may_come_before_the_task_is_read(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("a", "b"))
    wanted = request()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        number = await stream.subscribe(wanted.generation, after=1)
        await asyncio.sleep(0.1)
        await enqueue(valkey, wanted)
        assert text(await stream.all(number)) == "ab"


async def test_a_reader_that_waits_for_nothing_is_told_in_the_time_it_asked_for(valkey_server: ValkeyServer) -> None:
    async with running_adapter(valkey_server.url, ScriptedEngine()) as adapter, attached(adapter) as stream:
        number = await stream.subscribe(new_generation_id(), after=1, wait_ms=500)
        begun = time.monotonic()
        (event,) = await stream.all(number)
        assert reason(event) == "queue_timeout"
        assert event.error.delivered_until == 1
        assert 0.4 < time.monotonic() - begun < 10


async def test_a_late_reader_gets_everything_from_memory(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        call = await engine.next_call()
        call.say("a", "b", "c")
        await asyncio.sleep(0.05)
        number = await stream.subscribe(generation)
        assert text(await stream.until(number, 3)) == "abc"
        call.say("d")
        call.end()
        events = await stream.all(number)
        assert text(events) == "abcd"
        assert_tile(events)
        late = await stream.subscribe(generation)
        assert await stream.all(late) == [with_number(event, late) for event in events]


def with_number(event: Any, number: int) -> Any:
    event.subscription = number
    return event


async def test_two_readers_get_the_same(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with (
        running_adapter(valkey_server.url, engine) as adapter,
        attached(adapter) as one,
        attached(adapter) as other,
    ):
        generation = await enqueue(valkey, request())
        numbers = [await one.subscribe(generation), await one.subscribe(generation)]
        await other.subscribe(new_generation_id())
        second = await other.subscribe(generation)
        call = await engine.next_call()
        for piece in "abcdefgh":
            call.say(piece)
            await asyncio.sleep(0.01)
        call.end()
        answers = [await one.all(numbers[0]), await one.all(numbers[1]), await other.all(second)]
        for events in answers:
            assert text(events) == "abcdefgh"
            assert_tile(events)
        assert {event.subscription for event in answers[2]} == {second}


async def test_views_after_the_end_send_everything_or_the_outcome(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        complete = await stream.subscribe(generation, view="VIEW_COMPLETE")
        outcome = await stream.subscribe(generation, view="VIEW_OUTCOME")
        live = await stream.subscribe(generation)
        call = await engine.next_call()
        call.say("a", "b")
        await stream.until(live, 2)
        assert stream.events[complete] == stream.events[outcome] == []
        call.end()
        assert kinds(await stream.all(outcome)) == ["finished"]
        events = await stream.all(complete)
        assert text(events) == "ab"
        assert_tile(events)
        assert kinds(await stream.all(await stream.subscribe(generation, view="VIEW_OUTCOME"))) == ["finished"]
        again = await stream.all(await stream.subscribe(generation, view="VIEW_COMPLETE"))
        assert text(again) == "ab"


@pytest.mark.alone
async def test_a_cancel_of_what_runs_aborts_the_engine_at_once(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        number = await stream.subscribe(generation)
        call = await engine.next_call()
        call.say("a")
        await stream.until(number, 2)
        cancelled_at = time.monotonic()
        await stream.cancel(generation)
        events = await stream.all(number)
        assert call.aborted_at is not None
        assert call.aborted_at - cancelled_at < 0.5
        assert reason(events[-1]) == "cancelled"
        assert events[-1].error.delivered_until == 3
        assert_tile(events)
        await eventually(lambda: unfinished(valkey), 0)
        assert await state_of(valkey, generation) == "cancelled"


async def test_a2_a_cancel_in_the_queue_never_reaches_the_engine(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        await stream.subscribe(await enqueue(valkey, request("first")))
        generation = await enqueue(valkey, request("second"))
        number = await stream.subscribe(generation, after=1)
        await eventually(lambda: adapter.window.waiting, 1)
        await stream.cancel(generation)
        (event,) = await stream.all(number)
        assert (reason(event), event.position, event.epoch) == ("cancelled", 2, 0)
        engine.calls[0].end()
        await eventually(lambda: unfinished(valkey), 0)
        assert await state_of(valkey, generation) == "cancelled"
    assert [call.prompt for call in engine.calls] == ["first"]


async def test_a2_a_cancel_before_the_task_was_read_never_reaches_the_engine(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("x",))
    wanted = request("cancelled")
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        number = await stream.subscribe(wanted.generation, after=1)
        await stream.cancel(wanted.generation)
        (event,) = await stream.all(number)
        assert reason(event) == "cancelled"
        await enqueue(valkey, wanted)
        await stream.all(await stream.subscribe(await enqueue(valkey, request("other"))))
        await eventually(lambda: unfinished(valkey), 0)
        assert await state_of(valkey, wanted.generation) == "cancelled"
        (event,) = await stream.all(await stream.subscribe(wanted.generation, after=1))
        assert reason(event) == "cancelled"
    assert [call.prompt for call in engine.calls] == ["other"]


async def test_a_reader_whose_stream_broke_goes_on_where_it_was(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine, orphan_grace_s=1.0) as adapter:
        generation = await enqueue(valkey, request())
        async with attached(adapter) as stream:
            number = await stream.subscribe(generation, after=1)
            call = await engine.next_call()
            call.say("a", "b", "c")
            before = await stream.until(number, 3)
        call.say("d", "e")
        await asyncio.sleep(0.5)
        async with attached(adapter) as stream:
            number = await stream.subscribe(generation, after=before[-1].position)
            await asyncio.sleep(1.0)
            assert not call.aborted
            call.say("f")
            call.end()
            after = await stream.all(number)
        assert_tile(before + after)
        assert text(before + after) == "abcdef"


async def test_what_nobody_reads_is_aborted_after_the_grace(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(slots=2)
    async with running_adapter(valkey_server.url, engine, orphan_grace_s=1.0) as adapter, attached(adapter) as books:
        left = await enqueue(valkey, request("left"))
        outcome = await books.subscribe(left, view="VIEW_OUTCOME")
        async with attached(adapter) as stream:
            number = await stream.subscribe(left)
            (await engine.next_call()).say("a")
            await stream.until(number, 2)
            begun = time.monotonic()
        never_read = await enqueue(valkey, request("never read"))
        (event,) = await books.all(outcome)
        assert reason(event) == "cancelled"
        assert time.monotonic() - begun > 0.9
        await eventually(lambda: state_of(valkey, never_read), "cancelled")
    assert [call.aborted for call in engine.calls] == [True, True]


async def test_an_unsubscribed_reader_gets_no_more(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        one, other = await stream.subscribe(generation), await stream.subscribe(generation)
        call = await engine.next_call()
        call.say("a")
        await stream.until(one, 2)
        await stream.unsubscribe(one)
        await stream.cancel(new_generation_id())
        await asyncio.sleep(0.1)
        call.say("b")
        call.end()
        assert text(await stream.all(other)) == "ab"
        assert text(stream.events[one]) == "a"


async def test_a_deadline_that_passes_in_the_queue_ends_the_generation(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(slots=1)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        await stream.subscribe(await enqueue(valkey, request("first")))
        deadline = int(time.time() * 1000) + 600
        number = await stream.subscribe(await enqueue(valkey, request("second", deadline_unix_ms=deadline)))
        (event,) = await stream.all(number)
        assert reason(event) == "deadline_exceeded"
        assert len(engine.calls) == 1


async def test_a_deadline_that_passes_while_the_engine_works_aborts_it(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        deadline = int(time.time() * 1000) + 600
        number = await stream.subscribe(await enqueue(valkey, request(deadline_unix_ms=deadline)))
        (await engine.next_call()).say("a")
        events = await stream.all(number)
        assert reason(events[-1]) == "deadline_exceeded"
        assert engine.calls[0].aborted


async def test_what_waited_too_long_since_it_was_accepted_is_not_started(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(answer=("x",))
    generation = await enqueue(valkey, request(), age_s=400)
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        (event,) = await stream.all(await stream.subscribe(generation, after=1))
        assert reason(event) == "queue_timeout"
        await eventually(lambda: state_of(valkey, generation), "failed")
    assert engine.calls == []


async def test_an_engine_error_reaches_the_reader(valkey: Redis, valkey_server: ValkeyServer) -> None:
    from streamway.errors import EngineRejected

    engine = ScriptedEngine()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, request())
        number = await stream.subscribe(generation, after=1)
        (await engine.next_call()).sink.failed(EngineRejected("no such tool", 400))
        (event,) = await stream.all(number)
        assert (reason(event), event.position) == ("engine_rejected", 2)
        assert event.error.status.message == "no such tool"
        await eventually(lambda: state_of(valkey, generation), "failed")


async def test_a_second_copy_of_a_task_is_run_only_once(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine()
    wanted = request()
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        number = await stream.subscribe(await enqueue(valkey, wanted))
        await enqueue(valkey, wanted)
        call = await engine.next_call()
        await eventually(lambda: unfinished(valkey), 1)
        call.end()
        await stream.all(number)
        await eventually(lambda: unfinished(valkey), 0)
        await enqueue(valkey, wanted)
        await eventually(lambda: unfinished(valkey), 0)
        assert len(engine.calls) == 1


async def test_what_cannot_be_run_leaves_the_lane(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("x",))
    lane = keys.lane(WORKER, "gold")
    await valkey.xadd(lane, {"strange": "1"})
    lost_record = new_generation_id()
    await valkey.xadd(lane, {"generation": lost_record, "attempt": "1", "ref": "r"})
    async with running_adapter(valkey_server.url, engine) as adapter, attached(adapter) as stream:
        (event,) = await stream.all(await stream.subscribe(lost_record))
        # Who asks when it is off this worker's hands is sent to its channel, and there is none.
        assert reason(event) in ("generation_not_found", "events_expired")
        await stream.all(await stream.subscribe(await enqueue(valkey, request())))
        await eventually(lambda: unfinished(valkey), 0)


async def test_an_engine_that_does_not_answer_gets_no_new_work(valkey: Redis, valkey_server: ValkeyServer) -> None:
    engine = ScriptedEngine(answer=("x",))
    async with (
        running_adapter(valkey_server.url, engine, engine_check_s=0.1) as adapter,
        attached(adapter) as stream,
    ):
        engine.broken = True
        await eventually(lambda: adapter.window.free, 0)
        await eventually(lambda: lease_field(valkey, "healthy"), b"0")
        number = await stream.subscribe(await enqueue(valkey, request()))
        await asyncio.sleep(0.3)
        assert engine.calls == []
        assert await unfinished(valkey) == 1
        engine.broken = False
        assert kinds(await stream.all(number))[-1] == "finished"


async def lease_field(valkey: Redis, name: str) -> bytes | None:
    found: bytes | None = await valkey.hget(keys.lease("worker", WORKER), name)
    return found


@pytest.mark.alone
@pytest.mark.parametrize("units", [1, 3])
async def test_pieces_are_merged_between_flushes_and_a_full_batch_does_not_wait(
    valkey: Redis, valkey_server: ValkeyServer, units: int
) -> None:
    engine = ScriptedEngine()
    async with (
        running_adapter(valkey_server.url, engine, flush_ms=1000, flush_units=units) as adapter,
        attached(adapter) as stream,
    ):
        number = await stream.subscribe(await enqueue(valkey, request()))
        call = await engine.next_call()
        call.say("first")
        assert text(await stream.until(number, 2, within_s=0.9)) == "first"
        call.say(*"abcdef")
        call.sink.piece(0, "g")
        events = await stream.until(number, 2 + 6 // units, within_s=0.9)
        assert [event.token.units for event in events[2:]] == [units] * (6 // units) + [1] * (units == 1)
        call.end()
        events = await stream.all(number)
        assert text(events) == "firstabcdefg"
        assert_tile(events)
