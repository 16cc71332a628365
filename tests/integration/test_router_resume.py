"""Clients that come back: cursors, keys, tenants, and what is told when a channel can't serve them."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from streamway.errors import from_rpc_error, from_status
from streamway.journal import Cursor, Entry, Kind, encode_events
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.journaling_worker import words
from tests.support.router_mesh import Mesh, ask, until
from tests.support.takeover_mesh import ranges_of, takeover_mesh, text_of
from tests.support.valkey_server import ValkeyServer


async def _resume(made: Mesh, generation: str, cursor: str = "", **fields: Any) -> list[common_pb2.Event]:
    request = router_pb2.ResumeRequest(generation=generation, cursor=cursor)
    call = made.stub.Resume(request, metadata=fields.get("metadata", made.metadata))
    return [event async for response in call for event in response.events]


async def _refusal(made: Mesh, generation: str, cursor: str = "", **fields: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _resume(made, generation, cursor, **fields)
    return from_rpc_error(refused.value).name


async def _finished(made: Mesh, **fields: Any) -> tuple[str, list[common_pb2.Event]]:
    stream = made.connect()
    generation = await stream.open(ask(**fields), location=False)
    await until(lambda: "finished" in stream.kinds(generation), 10)
    await stream.close()
    return generation, stream.of(generation)


def _cursor(event: common_pb2.Event) -> str:
    return f"{event.epoch}-{event.position}"


class TestResume:
    async def test_from_any_cursor_comes_exactly_the_rest(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            generation, events = await _finished(made)
            for shown in (1, 2, 3, 11, len(events) - 1):
                rest = await _resume(made, generation, _cursor(events[shown - 1]))
                assert rest[0].resumed.recovered
                assert rest[0].resumed.after == _cursor(events[shown - 1])
                assert rest[0].resumed.oldest == 1
                assert ranges_of(rest) == ranges_of(events[shown:])
                assert text_of(events[:shown]) + text_of(rest) == words(20)
                assert rest[-1].finished.usage.completion_tokens == 20
                assert all(event.generation == generation for event in rest)
            whole = await _resume(made, generation)
            assert ranges_of(whole) == list(range(1, 24))
            again = await _resume(made, generation, _cursor(events[-1]))
            assert [event.WhichOneof("event") for event in again] == ["resumed", "finished"], (
                "a stream ends with its end"
            )

    async def test_while_it_runs_a_second_reader_follows_and_the_first_is_not_disturbed(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with takeover_mesh(valkey_server.url, workers=1, pace_s=0.05) as ((made,), _):
            stream = made.connect()
            generation = await stream.open(ask(), location=False)
            await until(lambda: text_of(stream.of(generation)).count(" ") >= 5)
            rest = await _resume(made, generation, _cursor(stream.of(generation)[3]))
            assert ranges_of(rest) == list(range(5, 24))
            await until(lambda: "finished" in stream.kinds(generation))
            assert text_of(stream.of(generation)) == words(20)
            await stream.close()

    async def test_a4_a_reader_that_leaves_cancels_nothing_and_finds_the_rest(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with takeover_mesh(valkey_server.url, workers=1, pace_s=0.05) as ((made,), workers):
            stream = made.connect()
            generation = await stream.open(ask(), location=False)
            await until(lambda: text_of(stream.of(generation)).count(" ") >= 3)
            await stream.close()
            shown = stream.of(generation)
            rest = await _resume(made, generation, _cursor(shown[-1]))
            assert text_of(shown) + text_of(rest) == words(20)
            assert workers[0].hand.cancelled == []

    async def test_j2_a_trimmed_channel_says_what_it_still_has(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            generation, events = await _finished(made)
            await valkey.xtrim(keys.response(generation), maxlen=5, approximate=False)
            rest = await _resume(made, generation, _cursor(events[3]))
            assert not rest[0].resumed.recovered
            assert not rest[0].resumed.behind
            assert rest[0].resumed.oldest == 19
            assert ranges_of(rest) == [19, 20, 21, 22, 23]
            rest = await _resume(made, generation, _cursor(events[19]))
            assert rest[0].resumed.recovered
            assert ranges_of(rest) == [21, 22, 23]

    async def test_j2_an_expired_channel_says_so_and_ends(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            generation, events = await _finished(made)
            await valkey.hset(keys.generation(generation), "state", "finished")
            await valkey.delete(keys.response(generation))
            rest = await _resume(made, generation, _cursor(events[3]))
            assert [event.WhichOneof("event") for event in rest] == ["resumed", "error"]
            assert (rest[0].resumed.recovered, rest[0].resumed.oldest) == (False, 0)
            assert from_status(rest[1].error.status).name == "events_expired"

    async def test_a_cursor_from_the_future_is_behind(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            generation, events = await _finished(made)
            rest = await _resume(made, generation, f"{events[-1].epoch}-9999")
            assert [event.WhichOneof("event") for event in rest] == ["resumed", "finished"]
            assert (rest[0].resumed.recovered, rest[0].resumed.behind) == (False, True)
            assert rest[0].resumed.after == _cursor(events[-1])

    async def test_a_text_that_is_not_part_of_the_answer_any_more_is_taken_back(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        """The store lost what the reader has seen, and another call wrote something else."""
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            generation, events = await _finished(made)
            own = events[-1].epoch
            foreign = Cursor((1 << 20) | ((own & 0xFFFFF) ^ 1), 9)
            rest = await _resume(made, generation, str(min(foreign, Cursor(own - 1, 9))))
            kinds = [event.WhichOneof("event") for event in rest]
            assert kinds[:3] == ["resumed", "diverged", "started"]
            assert rest[1].diverged.at == "0-1"
            assert ranges_of(rest) == list(range(2, 24))

    async def test_a_cursor_inside_an_event_takes_that_event_back(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with takeover_mesh(valkey_server.url, workers=0) as ((made,), _):
            generation = new_generation_id()
            token = common_pb2.Event(token=common_pb2.Token(text="abc", units=3))
            end = common_pb2.Event(finished=common_pb2.Finished(finish_reason="stop"))
            entries = [
                Entry(0, 1, 1, Kind.ACCEPTED, encode_events([common_pb2.Event(accepted=common_pb2.Accepted())])),
                Entry(0, 2, 4, Kind.TOKENS, encode_events([token])),
                Entry(0, 5, 5, Kind.END, encode_events([end])),
            ]
            for entry in entries:
                fields = entry.fields()
                pairs: Any = dict(zip(fields[::2], fields[1::2], strict=True))
                await valkey.xadd(keys.response(generation), pairs, id=str(entry.id))
            record: Any = {"state": "finished", "tenant": "anonymous", "worker": "", "durability": "2"}
            await valkey.hset(keys.generation(generation), mapping=record)
            rest = await _resume(made, generation, "0-3")
            assert [event.WhichOneof("event") for event in rest] == ["resumed", "diverged", "token", "finished"]
            assert rest[1].diverged.at == "0-1"
            assert (rest[2].first_position, rest[2].position) == (2, 4)

    async def test_bad_input(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            assert await _refusal(made, new_generation_id()) == "generation_not_found"
            assert await _refusal(made, "") == "invalid_argument"
            generation, _events = await _finished(made)
            for cursor in ("x", "1", "1-", "-1-2", "1-2-3", "5-0", "01-2"):
                assert await _refusal(made, generation, cursor) == "invalid_argument", cursor

    async def test_another_tenant_learns_nothing(
        self, valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
    ) -> None:
        keys_file = tmp_path / "keys.yaml"
        rows = [f"  - {{hash: {hashlib.sha256(n.encode()).hexdigest()}, tenant: {n}}}" for n in ("acme", "bolt")]
        keys_file.write_text("\n".join(["keys:", *rows]))
        shared = {"mesh_token": "secret", "api_keys_file": keys_file}
        async with takeover_mesh(valkey_server.url, workers=1, shared=shared) as ((made,), _):
            acme = grpc.aio.Metadata(("authorization", "Bearer acme"))
            bolt = grpc.aio.Metadata(("authorization", "Bearer bolt"))
            call = made.stub.Generate(router_pb2.GenerateRequest(request=ask(idempotency_key="k")), metadata=acme)
            events = [event async for response in call for event in response.events]
            generation = events[0].generation
            assert text_of(await _resume(made, generation, metadata=acme)) == words(20)
            assert await _refusal(made, generation, metadata=bolt) == "generation_not_found"
            assert await _refusal(made, new_generation_id(), metadata=bolt) == "generation_not_found"
            call = made.stub.Generate(router_pb2.GenerateRequest(request=ask(idempotency_key="k")), metadata=bolt)
            other = [event async for response in call for event in response.events]
            assert other[0].accepted.attached_to == "", "a key is its tenant's own"


class TestIdempotency:
    async def test_the_same_key_attaches_to_what_it_began_running_or_finished(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with takeover_mesh(valkey_server.url, workers=1, pace_s=0.03) as ((made,), workers):
            first, second = made.connect(), made.connect()
            one = await first.open(ask("pay", idempotency_key="k1"), location=False)
            await until(lambda: text_of(first.of(one)).count(" ") >= 3)
            two = await second.open(ask("pay", idempotency_key="k1", metadata={"x": "other"}), location=False)
            told = (await second.first(two)).accepted
            assert told.attached_to == one
            assert told.durability == common_pb2.DURABILITY_RELAXED
            await until(lambda: "finished" in second.kinds(two), 10)
            assert text_of(second.of(two)) == words(20)
            assert ranges_of(second.of(two)) == list(range(1, 24))
            await until(lambda: "finished" in first.kinds(one))
            three = await second.open(ask("pay", idempotency_key="k1"), location=False)
            await until(lambda: "finished" in second.kinds(three), 10)
            assert text_of(second.of(three)) == words(20)
            located = await second.open(ask("pay", idempotency_key="k1"))
            assert (await second.first(located)).accepted.attached_to == one
            assert workers[0].began == [(one, 1)]
            await first.close()
            await second.close()

    async def test_another_request_under_the_same_key_is_refused(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            stream = made.connect()
            one = await stream.open(ask("pay 1", idempotency_key="k"))
            await stream.first(one)
            error = (await stream.first(await stream.open(ask("pay 2", idempotency_key="k")))).error
            refused = from_status(error.status)
            assert (refused.name, refused.metadata["field"]) == ("idempotency_conflict", "idempotency_key")
            assert one in refused.message
            await stream.close()

    async def test_many_at_once_begin_one(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with takeover_mesh(valkey_server.url, workers=2, routers=2) as (made, workers):
            streams = [mesh.connect() for mesh in made]
            opened = [(each, await each.open(ask("x", idempotency_key="k"))) for _ in range(5) for each in streams]
            told = [(await each.first(generation)).accepted for each, generation in opened]
            assert all(event.model for event in told)
            begun = {event.attached_to or generation for event, (_, generation) in zip(told, opened, strict=True)}
            assert len(begun) == 1
            await until(lambda: sum(len(worker.began) for worker in workers) == 1)
            await asyncio.sleep(0.2)
            assert sum(len(worker.began) for worker in workers) == 1
            for each in streams:
                await each.close()

    async def test_a_refused_request_leaves_its_key_free(self, valkey: Redis, valkey_server: ValkeyServer) -> None:
        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            stream = made.connect()
            refused = await stream.first(await stream.open(ask("x", model="gpt-9", idempotency_key="k")))
            assert refused.HasField("error")
            good = await stream.first(await stream.open(ask("y", idempotency_key="k")))
            assert good.accepted.attached_to == ""
            await stream.close()

    async def test_a_key_whose_first_request_died_is_taken_over(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        from services.router.core.idempotency import Claim, digest_of, digest_of_key

        async with takeover_mesh(valkey_server.url, workers=1) as ((made,), _):
            dead = ask("x", idempotency_key="k")
            dead.durability, dead.on_disconnect = common_pb2.DURABILITY_RELAXED, common_pb2.ON_DISCONNECT_GRACE
            await valkey.set(
                keys.idempotency("anonymous", digest_of_key("k")), str(Claim(dead.generation, digest_of(dead)))
            )
            stream = made.connect()
            event = await stream.first(await stream.open(ask("x", idempotency_key="k")), 8)
            assert event.HasField("accepted")
            assert event.accepted.attached_to == ""
            await stream.close()

    async def test_a_generation_that_a_dead_router_accepted_is_not_begun_twice(
        self, valkey: Redis, valkey_server: ValkeyServer
    ) -> None:
        """The edge sends the same id to the next router, since the first did not answer."""
        async with takeover_mesh(valkey_server.url, workers=1, routers=2) as ((one, two), workers):
            first, second = one.connect(), two.connect()
            request = ask()
            await first.first(await first.open(request))
            told = (await second.first(await second.open(request, location=False))).accepted
            assert told.worker == "w0"
            await until(lambda: "finished" in second.kinds(request.generation), 10)
            assert text_of(second.of(request.generation)) == words(20)
            assert workers[0].began == [(request.generation, 1)]
            await first.close()
            await second.close()
