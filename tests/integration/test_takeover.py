"""One worker dies, another goes on: real Valkey, real gRPC, the simulated engine, whose text is the same on every worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.simulated import InProcessCall, SimulatedBackend
from services.inference_adapter.core.capabilities import Capabilities
from services.inference_adapter.interfaces import EngineSink
from streamway.errors import ContextLengthExceeded, EngineRejected
from streamway.journal import ChoiceSoFar, Cursor, Kind
from streamway.models.abilities import Ability
from streamway.runtime.clock import SystemClock
from streamway.simulation.settings import Faults
from streamway.simulation.text import AnswerText
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.support.adapter_world import (
    assert_tile,
    attached,
    channel_of,
    enqueue,
    eventually,
    kinds,
    reason,
    request,
    state_of,
    text,
)
from tests.support.scripted_engine import ScriptedEngine
from tests.support.two_workers import (
    RELAXED,
    STRICT,
    copy_for,
    ended,
    events_in,
    kill,
    router_lease,
    simulated,
    worker,
)
from tests.support.valkey_server import ValkeyServer

TOKENS = 80
# Long enough for an engine to die after any token up to the 200th.
LONG = 210


def asked(prompt: str = "Tell me.", tokens: int = TOKENS, **fields: Any) -> common_pb2.GenerationRequest:
    fields = {"model": "simulated", "durability": RELAXED, **fields}
    wanted = request(prompt, **fields)
    wanted.limits.max_tokens = tokens
    return wanted


async def undisturbed(
    url: str, valkey: Redis, prompt: str = "Tell me.", tokens: int = TOKENS
) -> list[common_pb2.Event]:
    """The whole answer of a worker that nothing happens to."""
    async with worker(url, "calm", simulated(rate=10_000.0)) as calm, attached(calm) as stream:
        generation = await enqueue(valkey, asked(prompt, tokens), worker="calm")
        return await stream.all(await stream.subscribe(generation))


def usage(events: list[common_pb2.Event]) -> tuple[int, int]:
    last = events[-1].finished.usage
    return last.prompt_tokens, last.completion_tokens


async def test_a_killed_worker_is_replaced_and_its_reader_sees_one_text(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    whole = await undisturbed(valkey_server.url, valkey)
    url = valkey_server.url
    await router_lease(valkey, SystemClock())
    # The first is so slow that a busy machine does not miss the middle of its answer.
    async with worker(url, "a", simulated(rate=20.0)) as first, worker(url, "b", simulated()) as second:
        generation = await enqueue(valkey, asked(), worker="a")
        async with attached(first) as stream:
            number = await stream.subscribe(generation, after=1)
            before = await stream.until(number, 7)
        await kill(first, valkey, "a")
        await copy_for(valkey, generation, "b")
        cursor = Cursor(before[-1].epoch, before[-1].position)
        async with attached(second) as stream:
            number = await stream.subscribe(generation, after=cursor.position, after_epoch=cursor.epoch)
            after = await stream.all(number)
            early = await stream.all(await stream.subscribe(generation))
        told = before + after
        assert text(told) == text(whole)
        assert_tile(told)
        taken_over = [event.taken_over for event in told if event.HasField("taken_over")]
        assert [(each.worker, each.from_worker) for each in taken_over] == [("b", "a")]
        assert taken_over[0].line.count(",") == 2
        assert usage(told) == usage(whole)
        # Whoever begins again at the new worker gets the same: its memory has what the first one made.
        assert text(early) == text(whole)
        assert kinds(early)[:2] == ["accepted", "started"]
        assert_tile(early, first=1)
        entries = await channel_of(valkey, generation)
        assert ended(entries)
        assert text(events_in(entries)) == text(whole)
        assert_tile(events_in(entries), first=1)
        await eventually(lambda: valkey.xlen(keys.lane("b", "gold")), 0)
        await eventually(lambda: state_of(valkey, generation), "finished")
        record = await valkey.hgetall(keys.generation(generation))
        assert (record[b"worker"], int(record[b"epoch"]) >> 20) == (b"b", 2)
        indices = [event.token.first_token_index for event in told if event.HasField("token")]
        assert indices == sorted(indices)
        assert indices[-1] >= TOKENS - 16


async def test_a_zombie_can_not_write_and_sends_its_readers_away(valkey: Redis, valkey_server: ValkeyServer) -> None:
    url = valkey_server.url
    first_engine, second_engine = ScriptedEngine(model="simulated"), ScriptedEngine(model="simulated")
    async with (
        worker(url, "a", first_engine) as first,
        worker(url, "b", second_engine) as second,
        attached(first) as zombie,
        attached(second) as stream,
    ):
        generation = await enqueue(valkey, asked(), worker="a")
        number = await zombie.subscribe(generation, after=1)
        call = await first_engine.next_call()
        call.say("one ")
        await zombie.until(number, 2)
        await copy_for(valkey, generation, "b")
        reader = await stream.subscribe(generation)
        heir = await second_engine.next_call()
        assert heir.so_far is not None
        assert heir.so_far.text == "one "
        call.say("zombie")
        events = await zombie.all(number)
        assert (reason(events[-1]), events[-1].epoch) == ("events_expired", 0)
        assert "zombie" not in text(events)
        assert call.aborted
        heir.say("two")
        heir.end()
        assert text(await stream.all(reader)) == "one two"
        entries = await channel_of(valkey, generation)
        assert ended(entries)
        assert "zombie" not in text(events_in(entries))
        assert [entry for entry in entries if b"zombie" in entry.payload] == []
        await eventually(lambda: valkey.xlen(keys.lane("a", "gold")), 0)
        await eventually(lambda: state_of(valkey, generation), "finished")
        # The zombie says so at once to whoever still asks it.
        (event,) = await zombie.all(await zombie.subscribe(generation, after=1))
        assert reason(event) == "events_expired"


class DyingEngine(SimulatedBackend):
    """Breaks each call before the token that its request names, unless it goes on with an answer."""

    def call(
        self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None = None
    ) -> InProcessCall:
        dying = common_pb2.GenerationRequest()
        dying.CopyFrom(request)
        k = int(request.metadata["die_at"])
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        body = {
            "messages": messages,
            "max_tokens": request.limits.max_tokens,
            "streamway_faults": {"die_at_token": k + 1},
        }
        dying.openai_body = json.dumps(body).encode()
        return super().call(dying, sink, so_far)


async def test_d1_an_engine_that_dies_after_any_token_is_gone_on_with(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    whole = await undisturbed(url, valkey, tokens=LONG)
    dying = simulated(rate=400.0)
    dying.__class__ = DyingEngine
    async with (
        worker(url, "a", dying) as first,
        worker(url, "b", simulated(rate=2000.0)) as second,
        attached(first) as stream,
        attached(second) as heir,
    ):
        generations = {
            k: await enqueue(valkey, asked(tokens=LONG, metadata={"die_at": str(k)}), worker="a") for k in range(201)
        }
        numbers = {k: await stream.subscribe(generation, after=1) for k, generation in generations.items()}
        for k, generation in generations.items():
            before = (await stream.all(numbers[k], within_s=30))[:-1]
            at = before[-1] if before else common_pb2.Event(position=1)
            after = await heir.all(
                await heir.subscribe(generation, after=at.position, after_epoch=at.epoch), within_s=30
            )
            told = before + after
            assert text(told) == text(whole), k
            assert_tile(told)
            # Before the first token there is nothing to take over: the call is made again.
            assert kinds(told).count("taken_over") == (k > 0)
            assert usage(told) == usage(whole)
            entries = await channel_of(valkey, generation)
            assert_tile(events_in(entries), first=1)
            first_call = [event for event in events_in(entries) if event.epoch >> 20 == 1]
            assert text(first_call) == "".join(pieces(whole, LONG)[:k])


def pieces(events: list[common_pb2.Event], tokens: int = TOKENS) -> list[str]:
    """The tokens of an answer, one by one: the simulator's text is a function of its prompt."""
    prompt = b"\x02user\x03Tell me."
    answer = AnswerText(prompt, 0, 0, 250)
    made = [answer.token(index) for index in range(tokens)]
    assert "".join(made) == text(events)
    return made


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"n": 2}, "several"),
        ({"response_format": {"type": "json_object"}}, "format"),
        ({"guided_regex": "a+"}, "grammar"),
        ({"presence_penalty": 0.5}, "penalties"),
        ({"logprobs": True}, "probabilities"),
        ({"stop": ["wordly"]}, "stop string"),
        ({}, ""),
    ],
)
async def test_d2_what_can_not_be_continued_honestly_ends_and_says_where(
    valkey: Redis, valkey_server: ValkeyServer, change: dict[str, Any], why: str
) -> None:
    url = valkey_server.url
    first_engine, second_engine = ScriptedEngine(model="simulated"), ScriptedEngine(model="simulated")
    body = {"messages": [{"role": "user", "content": "hi"}], **change}
    wanted = asked(openai_body=json.dumps(body).encode())
    async with worker(url, "a", first_engine) as first, worker(url, "b", second_engine) as second:
        generation = await enqueue(valkey, wanted, worker="a")
        async with attached(first) as stream:
            number = await stream.subscribe(generation, after=1)
            (await first_engine.next_call()).say("some", " word")
            before = await stream.until(number, 3)
        await kill(first, valkey, "a")
        await copy_for(valkey, generation, "b")
        async with attached(second) as stream:
            last = before[-1]
            number = await stream.subscribe(generation, after=last.position, after_epoch=last.epoch)
            if not why:
                (await second_engine.next_call()).end()
                assert kinds(await stream.all(number)) == ["taken_over", "token", "finished"]
                return
            after = await stream.all(number)
            assert kinds(after) == ["taken_over", "error"]
            assert reason(after[-1]) == "takeover_unsupported"
            assert why in after[-1].error.status.message
            assert after[-1].error.delivered_until == after[-1].position - 1
            assert after[-1].epoch >> 20 == 2
            assert second_engine.calls == []
        assert ended(await channel_of(valkey, generation))


async def test_d2_a_tool_call_cut_in_the_middle_is_never_reported_finished(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    first_engine, second_engine = ScriptedEngine(model="simulated"), ScriptedEngine(model="simulated")
    async with worker(url, "a", first_engine) as first, worker(url, "b", second_engine) as second:
        generation = await enqueue(valkey, asked(), worker="a")
        async with attached(first) as stream:
            number = await stream.subscribe(generation, after=1)
            call = await first_engine.next_call()
            call.sink.piece(0, "", raw_delta=b'{"delta":{"tool_calls":[{"index":0}]}}')
            await stream.until(number, 2)
        await kill(first, valkey, "a")
        await copy_for(valkey, generation, "b")
        async with attached(second) as stream:
            events = await stream.all(await stream.subscribe(generation))
            assert reason(events[-1]) == "takeover_unsupported"


async def test_an_answer_that_was_whole_gets_its_end_without_an_engine(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    first_engine, second_engine = ScriptedEngine(model="simulated"), ScriptedEngine(model="simulated")
    async with worker(url, "a", first_engine) as first, worker(url, "b", second_engine) as second:
        generation = await enqueue(valkey, asked(), worker="a")
        async with attached(first) as stream:
            number = await stream.subscribe(generation, after=1)
            call = await first_engine.next_call()
            call.say("a", "b")
            call.sink.piece(0, "c", finish_reason="stop")
            await stream.until(number, 3)
        await kill(first, valkey, "a")
        await copy_for(valkey, generation, "b")
        async with attached(second) as stream:
            events = await stream.all(await stream.subscribe(generation))
        assert text(events) == "abc"
        assert events[-1].finished.finish_reason == "stop"
        told = events[-1].finished.usage
        assert (told.prompt_tokens, told.completion_tokens, told.estimated) == (2, 3, True)
        assert second_engine.calls == []


async def test_a_worker_that_comes_back_gives_what_it_ran_to_others(valkey: Redis, valkey_server: ValkeyServer) -> None:
    url = valkey_server.url
    whole = await undisturbed(url, valkey)
    await router_lease(valkey, SystemClock())
    # The first is so slow that a busy machine does not miss the middle of its answer.
    async with worker(url, "a", simulated(rate=20.0)) as first, worker(url, "b", simulated()) as second:
        generation = await enqueue(valkey, asked(), worker="a")
        async with attached(first) as stream:
            number = await stream.subscribe(generation, after=1)
            await stream.until(number, 6)
        await kill(first, valkey, "a")
        async with worker(url, "a", simulated()) as again, attached(second) as stream, attached(again) as late:
            await eventually(lambda: holder(valkey, generation), "b", within_s=20)
            events = await stream.all(await stream.subscribe(generation), within_s=20)
            assert text(events) == text(whole)
            assert_tile(events, first=1)
            await eventually(lambda: valkey.xlen(keys.lane("a", "gold")), 0)
            (event,) = await late.all(await late.subscribe(generation, after=1), within_s=20)
            assert reason(event) == "events_expired"


async def test_without_routers_workers_reclaim_what_a_dead_one_had_read_and_not_read(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    async with (
        worker(url, "a", ScriptedEngine(slots=1, model="simulated"), preload_depth=0) as first,
        worker(url, "b", simulated(rate=2000.0), reclaim_after_s=1.0) as second,
    ):
        generations = [await enqueue(valkey, asked(), worker="a") for _ in range(4)]
        await eventually(lambda: first.window.running, 1)
        await kill(first, valkey, "a")
        async with attached(second) as stream:
            for generation in generations:
                await eventually(lambda id_=generation: holder(valkey, id_), "b", within_s=20)
                events = await stream.all(await stream.subscribe(generation), within_s=20)
                assert kinds(events)[-1] == "finished"
                assert_tile(events, first=1)
        await eventually(lambda: valkey.xlen(keys.lane("a", "gold")), 0)


async def test_a_task_in_the_pool_is_taken_by_any_worker(valkey: Redis, valkey_server: ValkeyServer) -> None:
    url = valkey_server.url
    async with worker(url, "b", simulated(rate=2000.0)) as adapter, attached(adapter) as stream:
        wanted = asked()
        await enqueue(valkey, wanted, worker="nobody")
        await valkey.delete(keys.lane("nobody", "gold"))
        pool = keys.pool("simulated", "gold")
        await valkey.xadd(pool, {"generation": wanted.generation, "attempt": 1, "ref": "r"})
        events = await stream.all(await stream.subscribe(wanted.generation))
        assert kinds(events)[-1] == "finished"
        await eventually(lambda: valkey.xlen(pool), 0)


async def test_l1_a_drain_moves_what_it_can_not_finish(valkey: Redis, valkey_server: ValkeyServer) -> None:
    url = valkey_server.url
    whole = await undisturbed(url, valkey)
    await router_lease(valkey, SystemClock())
    async with (
        # So slow that a busy machine does not miss the middle of its answers.
        worker(
            url, "a", simulated(rate=20.0, slots=2), drain_grace_s=0.2, drain_notice_s=0.1, preload_depth=1
        ) as first,
        worker(url, "b", simulated()) as second,
        attached(first) as stream,
        attached(second) as heir,
    ):
        generations = [await enqueue(valkey, asked(durability=mode), worker="a") for mode in (RELAXED, STRICT) * 3]
        numbers = [await stream.subscribe(generation, after=1) for generation in generations]
        await stream.until(numbers[0], 5)
        await stream.until(numbers[1], 5)
        async with asyncio.timeout(20):
            await first.drain()
        assert await valkey.xlen(keys.lane("a", "gold")) == 0
        for generation in generations:
            events = await heir.all(await heir.subscribe(generation), within_s=20)
            assert text(events) == text(whole)
            assert_tile(events, first=1)
        moved = await stream.all(numbers[0])
        assert (reason(moved[-1]), moved[-1].epoch) == ("events_expired", 0)
    attempts = [
        [entry.epoch >> 20 for entry in await channel_of(valkey, generation) if entry.begin is not None]
        for generation in generations
    ]
    # What had not begun was no attempt.
    assert attempts == [[1, 2], [1, 2], [1], [1], [1], [1]]


async def test_l1_however_many_workers_are_drained_an_answer_goes_on(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    """A planned move is no failure of the task: the dead lane counts failures."""
    url, names = valkey_server.url, ["a", "b", "c", "d", "e"]
    await router_lease(valkey, SystemClock())
    engines = {name: ScriptedEngine(model="simulated") for name in names}
    generation = await enqueue(valkey, asked(), worker="a")
    async with contextlib.AsyncExitStack() as stack:
        present: list[Adapter] = []
        for number, name in enumerate(names, 1):
            made = worker(url, name, engines[name], drain_grace_s=0.1, drain_notice_s=0.05)
            present.append(await stack.enter_async_context(made))
            if number > 1:
                # The newcomer is the only one left to go to.
                await present[-2].drain()
            call = await engines[name].next_call()
            call.say(f"{name} ")
            await eventually(lambda: attempts(valkey, generation), number)
        call.end()
        await eventually(lambda: state_of(valkey, generation), "finished")
    entries = await channel_of(valkey, generation)
    assert [entry.epoch >> 20 for entry in entries if entry.begin is not None] == [1, 2, 3, 4, 5]
    assert text(events_in(entries)) == "a b c d e "


async def test_an_engine_that_goes_silent_in_mid_answer_is_left_to_another_worker(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    whole = await undisturbed(url, valkey)
    stalling = simulated(faults=Faults(stall_at_token=10, stall_s=60))
    async with (
        worker(url, "a", stalling, token_gap_s=1.0) as first,
        worker(url, "b", simulated()) as second,
        attached(first) as stream,
        attached(second) as heir,
    ):
        generation = await enqueue(valkey, asked(), worker="a")
        before = await stream.all(await stream.subscribe(generation, after=1), within_s=20)
        assert reason(before[-1]) == "events_expired"
        at = before[-2]
        after = await heir.all(await heir.subscribe(generation, after=at.position, after_epoch=at.epoch))
        assert text(before + after) == text(whole)
        assert_tile(before[:-1] + after)
        await eventually(lambda: first.window.running, 0)


@pytest.mark.parametrize("durability", [RELAXED, common_pb2.DURABILITY_OFF])
async def test_a_gap_that_nobody_can_go_on_from_is_told(
    valkey: Redis, valkey_server: ValkeyServer, durability: Any
) -> None:
    stalling = simulated(faults=Faults(stall_at_token=10, stall_s=60))
    async with worker(valkey_server.url, "a", stalling, token_gap_s=0.6) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, asked(durability=durability), worker="a")
        events = await stream.all(await stream.subscribe(generation, after=1), within_s=20)
        assert (reason(events[-1]), events[-1].error.delivered_until) == ("token_gap", events[-2].position)
        assert_tile(events)


async def holder(valkey: Redis, generation: str) -> str:
    """The worker that has begun a generation last."""
    return (await valkey.hget(keys.generation(generation), "worker") or b"").decode()


async def test_a_newer_copy_of_what_still_runs_here_waits_and_is_dropped_at_the_end(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    engine = ScriptedEngine(model="simulated")
    async with worker(valkey_server.url, "a", engine) as adapter, attached(adapter) as stream:
        generation = await enqueue(valkey, asked(), worker="a")
        number = await stream.subscribe(generation, after=1)
        call = await engine.next_call()
        call.say("a")
        await copy_for(valkey, generation, "a", attempt=2)
        await copy_for(valkey, generation, "a", attempt=1)
        await eventually(lambda: valkey.xlen(keys.lane("a", "gold")), 3)
        await asyncio.sleep(0.2)
        call.say("b")
        call.end()
        assert text(await stream.all(number)) == "ab"
        await eventually(lambda: valkey.xlen(keys.lane("a", "gold")), 0)
        assert len(engine.calls) == 1
        # One that comes after the end, too.
        await copy_for(valkey, generation, "a", attempt=3)
        await asyncio.sleep(0.1)
        await eventually(lambda: valkey.xlen(keys.lane("a", "gold")), 0)
        assert len(engine.calls) == 1


async def test_i2_a_task_that_brings_down_its_third_worker_is_given_up_with_its_history(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    async with worker(url, "z", simulated(), reclaim_after_s=1.0) as last:
        generation = await enqueue(valkey, asked(), worker="a")
        for attempt in (1, 2, 3):
            engine = ScriptedEngine(model="simulated")
            async with worker(url, "a", engine) as adapter:
                (await engine.next_call()).say(f"{attempt} ")
                await eventually(lambda a=attempt: attempts(valkey, generation), attempt)
                await kill(adapter, valkey, "a")
            if attempt < 3:
                # As a router would that has no other worker.
                await valkey.delete(keys.lane("a", "gold"))
                await copy_for(valkey, generation, "a", attempt + 1)
        await eventually(lambda: valkey.xlen(keys.dead("simulated")), 1, within_s=20)
        # Its end comes after its history.
        await eventually(lambda: is_over(valkey, generation), True)
        entries = await channel_of(valkey, generation)
        assert reason(events_in(entries)[-1]) == "too_many_attempts"
        assert text(events_in(entries)) == "1 2 3 "
        ((_, fields),) = await valkey.xrange(keys.dead("simulated"))
        assert [call["worker"] for call in json.loads(fields[b"calls"])] == ["a", "a", "a"]
        await eventually(lambda: valkey.xlen(keys.lane("a", "gold")), 0)
        assert last.window.running == 0


async def is_over(valkey: Redis, generation: str) -> bool:
    """Whether its end is in the channel."""
    return ended(await channel_of(valkey, generation))


async def attempts(valkey: Redis, generation: str) -> int:
    """How many engine calls have written something."""
    return len({entry.epoch for entry in await channel_of(valkey, generation) if entry.kind is Kind.TOKENS})


async def test_an_engine_that_can_not_take_the_beginning_of_an_answer_is_told_as_that(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    url = valkey_server.url
    first_engine, second_engine = ScriptedEngine(model="simulated"), ScriptedEngine(model="simulated")
    async with worker(url, "a", first_engine) as first, worker(url, "b", second_engine) as second:
        refused, full = await enqueue(valkey, asked(), worker="a"), await enqueue(valkey, asked(), worker="a")
        for number in (1, 2):
            (await first_engine.next_call(number)).say("some words")
        for generation in (refused, full):
            await eventually(lambda id_=generation: attempts(valkey, id_), 1)
        await kill(first, valkey, "a")
        await copy_for(valkey, refused, "b")
        await copy_for(valkey, full, "b")
        async with attached(second) as stream:
            numbers = [await stream.subscribe(generation) for generation in (refused, full)]
            (await second_engine.next_call()).sink.failed(EngineRejected("unknown field", 400))
            (await second_engine.next_call(2)).sink.failed(ContextLengthExceeded("4,097 tokens"))
            events = await stream.all(numbers[0])
            assert reason(events[-1]) == "takeover_unsupported"
            assert "unknown field" in events[-1].error.status.message
            # What fills the context ends there, as it would have in one go.
            events = await stream.all(numbers[1])
            assert events[-1].finished.finish_reason == "length"
            assert events[-1].finished.usage.completion_tokens == 1
            assert_tile(events, first=1)


async def test_d2_an_engine_that_begins_anew_is_not_asked_to_go_on(valkey: Redis, valkey_server: ValkeyServer) -> None:
    url = valkey_server.url
    first_engine, second_engine = ScriptedEngine(model="simulated"), ScriptedEngine(model="simulated")
    second_engine.capabilities = Capabilities(cannot=frozenset({Ability.CONTINUES}))
    async with worker(url, "a", first_engine) as first, worker(url, "b", second_engine) as second:
        begun, unbegun = await enqueue(valkey, asked(), worker="a"), await enqueue(valkey, asked(), worker="a")
        (await first_engine.next_call()).say("some words")
        await eventually(lambda: attempts(valkey, begun), 1)
        await first_engine.next_call(2)
        await kill(first, valkey, "a")
        await copy_for(valkey, begun, "b")
        await copy_for(valkey, unbegun, "b")
        async with attached(second) as stream:
            refused, fresh = [await stream.subscribe(generation) for generation in (begun, unbegun)]
            (await second_engine.next_call()).say("all of it")
            second_engine.calls[0].end()
            assert reason((await stream.all(refused))[-1]) == "takeover_unsupported"
            # Of what had said nothing a call from the beginning is honest.
            assert (await stream.all(fresh))[-1].finished.finish_reason == "stop"
        assert len(second_engine.calls) == 1


async def test_a_worker_takes_up_what_it_had_taken_from_the_pool(valkey: Redis, valkey_server: ValkeyServer) -> None:
    url = valkey_server.url
    await router_lease(valkey, SystemClock())
    pool = keys.pool("simulated", "gold")
    wanted = asked()
    engine = ScriptedEngine(slots=1, model="simulated")
    async with worker(url, "a", engine) as first:
        await enqueue(valkey, asked(), worker="a")
        await engine.next_call()
        await enqueue(valkey, wanted, worker="nobody")
        await valkey.xadd(pool, {"generation": wanted.generation, "attempt": 1, "ref": "r"})
        await eventually(lambda: first.window.waiting, 1)
        await kill(first, valkey, "a")
    async with worker(url, "a", simulated(rate=2000.0)) as again, attached(again) as stream:
        events = await stream.all(await stream.subscribe(wanted.generation))
        assert kinds(events)[-1] == "finished"
        await eventually(lambda: valkey.xlen(pool), 0)
