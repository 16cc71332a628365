"""`locate` and `read_on` on a Connect stream: what readers ask that lost their worker."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis

from streamway.errors import from_status
from streamway.runtime.ids import new_generation_id
from streamway.v1 import router_pb2
from tests.support.journaling_worker import words
from tests.support.router_mesh import ConnectStream, Mesh, ask, mesh, until
from tests.support.takeover_mesh import ranges_of, takeover_mesh, text_of
from tests.support.valkey_server import ValkeyServer


def _locate(number: int, generation: str, **fields: Any) -> router_pb2.ConnectCommand:
    request = router_pb2.GetGenerationRequest(generation=generation, **fields)
    return router_pb2.ConnectCommand(locate=router_pb2.Locate(number=number, request=request))


def _read_on(generation: str, cursor: str = "") -> router_pb2.ConnectCommand:
    request = router_pb2.ResumeRequest(generation=generation, cursor=cursor)
    return router_pb2.ConnectCommand(read_on=router_pb2.ReadOn(request=request))


async def _opened(made: Mesh, stream: ConnectStream, number: int) -> list[str]:
    requests = [ask(str(index)) for index in range(number)]
    opens = [router_pb2.Open(request=each, delivery=router_pb2.DELIVERY_LOCATION) for each in requests]
    await stream.send(*[router_pb2.ConnectCommand(open=each) for each in opens])
    await until(lambda: len(stream.events) == number, 20)
    return [request.generation for request in requests]


async def test_a_thousand_questions_in_one_message_are_answered_in_few(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, queue_limit=2000) as made:
        stream = made.connect()
        generations = await _opened(made, stream, 1000)
        before = stream.messages
        await stream.send(*[_locate(index + 1, generation) for index, generation in enumerate(generations)])
        await until(lambda: len(stream.located) == 1000, 20)
        answers = {answer.number: answer.found for answer in stream.located}
        assert [answers[index + 1].generation for index in range(1000)] == generations
        assert {answer.worker for answer in answers.values()} == {"w0"}
        assert {answer.source for answer in answers.values()} == {made.workers[0].server.address}
        assert stream.messages - before < 500
        await stream.close()


async def test_a_question_waits_for_a_worker_that_goes_on_and_holds_nobody_up(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream = made.connect()
        (generation,) = await _opened(made, stream, 1)
        await stream.send(
            _locate(1, generation, wait_ms=1000, above_epoch=0), _locate(2, generation), _locate(3, new_generation_id())
        )
        await until(lambda: len(stream.located) == 2)
        answers = {answer.number: answer for answer in stream.located}
        assert answers[2].found.state == router_pb2.GENERATION_STATE_QUEUED
        assert from_status(answers[3].refused).name == "generation_not_found"
        await until(lambda: len(stream.located) == 3)
        assert stream.located[2].number == 1
        await stream.close()


async def test_bad_questions_are_refused_alone(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream = made.connect()
        (generation,) = await _opened(made, stream, 1)
        waiting = _locate(7, generation, wait_ms=20_000, above_epoch=0)
        await stream.send(
            waiting, _locate(0, generation), _locate(7, generation), _locate(8, ""), _locate(9, generation)
        )
        await until(lambda: len(stream.located) == 4)
        refused = [answer.number for answer in stream.located if answer.HasField("refused")]
        assert sorted(refused) == [0, 7, 8]
        await stream.call.done_writing()
        await asyncio.sleep(0.1)
        assert not stream.ended, "a question still waits"
        await stream.close()


async def test_a_drain_tells_those_who_wait_to_ask_elsewhere(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, drain_grace_s=0.1) as made:
        stream = made.connect()
        (generation,) = await _opened(made, stream, 1)
        await stream.send(_locate(1, generation, wait_ms=20_000), _locate(2, generation))
        await until(lambda: len(stream.located) == 1)
        await made.app.drain()
        await until(lambda: stream.ended)
        assert from_status(stream.located[-1].refused).name == "going_away"


async def test_read_on_gives_what_follows_a_cursor_and_names_what_is_wrong(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with takeover_mesh(valkey_server.url, workers=1, pace_s=0.03) as ((made,), _):
        first, second = made.connect(), made.connect()
        generation = await first.open(ask(), location=False)
        await until(lambda: text_of(first.of(generation)).count(" ") >= 3)
        seen = list(first.of(generation))
        await first.close()
        unknown = new_generation_id()
        await second.send(
            _read_on(generation, f"{seen[-1].epoch}-{seen[-1].position}"),
            _read_on(unknown),
            _read_on(generation, "no cursor"),
        )
        await until(lambda: "finished" in second.kinds(generation), 20)
        rest = [event for event in second.of(generation) if not event.HasField("error")]
        assert rest[0].resumed.recovered
        assert text_of(seen) + text_of(rest) == words(20)
        assert ranges_of(seen) + ranges_of(rest) == list(range(1, 24))
        assert from_status(second.of(unknown)[0].error.status).name == "generation_not_found"
        wrong = [event for event in second.of(generation) if event.HasField("error")]
        assert [from_status(event.error.status).name for event in wrong] == ["invalid_argument"]
        await second.close()


async def test_a_stream_of_questions_only_ends_when_they_are_answered(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream = made.connect()
        await stream.send(_locate(1, new_generation_id()))
        await stream.call.done_writing()
        await until(lambda: stream.ended)
        assert stream.error is None
        assert [answer.number for answer in stream.located] == [1]
