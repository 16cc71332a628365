"""Generations that outlive their reader: resumed at another edge, on another surface; restored; paused for slow readers."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import websockets
from redis.asyncio import Redis

from services.edge.app import Edge
from streamway.journal import Cursor, Line
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.clients import Frames, RawRequest, frames, sse, text_of
from tests.support.hand_router import accepted
from tests.support.inference_service import finished, token
from tests.support.journaled import EPOCH, RELAXED, Answer, JournaledWorld, journaled_world
from tests.support.valkey_server import ValkeyServer

RESTORE = "X-Session-Restore-ID"


@pytest.fixture
async def world(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[JournaledWorld]:
    async with journaled_world(valkey, valkey_server.url) as made:
        yield made


def url(edge: Edge) -> str:
    return f"http://{edge.address}"


def socket_url(edge: Edge) -> str:
    return f"ws://{edge.address}/v1/stream"


@asynccontextmanager
async def client_of(edge: Edge, **options: Any) -> AsyncIterator[tuple[Frames, dict[str, Any]]]:
    """A WebSocket and its hello."""
    async with websockets.connect(socket_url(edge), **options) as socket:
        client = Frames(socket)
        yield client, await client.receive()


async def opened(world: JournaledWorld, client: Frames, name: str, *texts: str, number: int = 1) -> Answer:
    """A durable generation that has said some tokens to the client."""
    await client.open(name, "hi")
    answer = await world.answer(number)
    await answer.say(*texts)
    for _ in texts:
        await client.until("token", name)
    return answer


async def call(method: str, where: str, **options: Any) -> tuple[int, Any, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, where, **options) as response:
        body = await response.read()
        return response.status, response.headers, json.loads(body) if body else None


async def test_j1_started_on_a_websocket_it_goes_on_by_sse_at_another_edge(world: JournaledWorld) -> None:
    first, second = await world.edge(), await world.edge()
    async with client_of(first) as (client, _):
        answer = await opened(world, client, "a", "Hel", "lo")
        after = answer.cursor
    await answer.say(", ", "wor")

    async def goes_on() -> None:
        await world.router.until(lambda: bool(world.router.located))
        await answer.say("ld")
        await answer.end()

    async with asyncio.TaskGroup() as group:
        group.create_task(goes_on())
        seen, ids = await sse(f"{url(second)}/v1/generations/{answer.id}/events?after={after}")
    assert [frame["type"] for frame in seen] == ["resumed", "token", "token", "token", "finished"]
    assert (seen[0]["recovered"], seen[0]["after"]) == (True, after)
    assert text_of(seen) == ", world"
    assert [frame["position"] for frame in seen[1:]] == [5, 6, 7, 8]
    assert ids[-1] == answer.cursor
    assert answer.id not in world.router.cancelled


async def test_j1_who_has_the_end_is_told_it_again_without_the_last_words_beside_it(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "Hello")
        before = answer.cursor
        await answer.end(", ", "world")
        await client.until("finished", "a")
    end = Cursor.parse(answer.cursor)
    told = f"{url(edge)}/v1/generations/{answer.id}/events?after="
    again, _ = await sse(told + str(end))
    assert [frame["type"] for frame in again] == ["resumed", "finished"]
    assert (again[0]["recovered"], again[1]["position"]) == (True, end.position)
    ahead, _ = await sse(told + str(Cursor(end.epoch, end.position + 3)))
    assert [frame["type"] for frame in ahead] == ["resumed", "finished"]
    assert (ahead[0]["behind"], ahead[1]["position"]) == (True, end.position)
    rest, _ = await sse(told + before)
    assert [frame["type"] for frame in rest] == ["resumed", "token", "token", "finished"]
    within, _ = await sse(told + str(Cursor(end.epoch, end.position - 1)))
    assert [frame["type"] for frame in within] == ["resumed", "finished"]


async def test_a_websocket_resumes_at_another_edge_with_the_epoch_in_every_frame_that_may_change_it(
    world: JournaledWorld,
) -> None:
    first, second = await world.edge(), await world.edge()
    async with client_of(first) as (client, _):
        answer = await opened(world, client, "a", "one ")
        after = answer.cursor
    async with client_of(second) as (client, _):
        await client.send(type="resume", id="b", generation=answer.id, after=after)
        resumed = (await client.until("resumed"))[-1]
        assert (resumed["id"], resumed["generation"], resumed["after"]) == ("b", answer.id, after)
        assert (resumed["recovered"], resumed["oldest"], resumed["epoch"]) == (True, 1, answer.epoch)
        await answer.say("two ")
        await client.until("token")
        answer.epoch = 2 << 20 | 5
        await answer.begin()
        await answer.say("three")
        await answer.end()
        seen = await client.until("finished")
    assert [frame["type"] for frame in seen] == ["taken_over", "token", "finished"]
    assert (seen[0]["epoch"], seen[0]["from_worker"]) == (answer.epoch, "gone")


async def test_where_the_edge_reads_the_worker_already_no_router_is_asked(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (reading, _), client_of(edge) as (left, _):
        await opened(world, reading, "a", "x")
        answer = await opened(world, left, "b", "one ", number=2)
        after = answer.cursor
        await left.socket.close()
        await answer.say(*"234567890", live=False)
        async with client_of(edge) as (client, _):
            await client.send(type="resume", id="c", generation=answer.id, after=after)
            async with asyncio.timeout(20):
                while (world.worker.subscribed[-1].generation, world.worker.subscribed[-1].after) != (
                    answer.id,
                    answer.position,
                ):
                    await asyncio.sleep(0.01)
            await answer.say(" two")
            await answer.end()
            seen = await client.until("finished")
    assert text_of(seen) == "234567890 two"
    assert [frame["type"] for frame in seen][:2] == ["resumed", "token"]
    assert world.router.located == []


async def test_a_resume_of_an_answer_that_another_call_went_on_with_is_told_so(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "one ")
        after = answer.cursor
        answer.epoch = 2 << 20 | 5
        await answer.begin(live=False)
        await answer.say("two ", "three", live=False)
        await answer.end(live=False)
        async with client_of(edge) as (again, _):
            await again.send(type="resume", id="b", generation=answer.id, after=after)
            seen = await again.until("finished")
            await again.send(type="resume", id="c", generation=answer.id, after=str(Cursor(answer.epoch, 5)))
            later = await again.until("finished", "c")
    assert [frame["type"] for frame in seen] == ["resumed", "taken_over", "token", "token", "finished"]
    assert [frame["type"] for frame in later] == ["resumed", "token", "finished"]
    assert (text_of(seen), text_of(later)) == ("two three", "three")


async def test_restore_of_many_gives_each_its_whole_rest(world: JournaledWorld) -> None:
    edge, count = await world.edge(), 150
    async with client_of(edge) as (client, hello):
        for number in range(count):
            await client.open(f"g{number}", "hi")
        answers = [await world.answer(number + 1) for number in range(count)]
        for answer in answers:
            await answer.say("0")
        for number in range(count):
            await client.until("token", f"g{number}")
    for answer in answers:
        await answer.say(*"12345", live=False)
        await answer.end(live=False)
    async with client_of(edge) as (client, _):
        await client.send(type="restore", restore_id=hello["restore_id"])
        seen: dict[str, list[dict[str, Any]]] = {}
        while sum(frames_of[-1]["type"] == "finished" for frames_of in seen.values()) < count:
            frame = await client.receive()
            if frame["type"] != "restored":
                seen.setdefault(frame["id"], []).append(frame)
    assert {text_of(frames_of) for frames_of in seen.values()} == {"12345"}
    assert {frames_of[0]["type"] for frames_of in seen.values()} == {"resumed"}


async def test_from_the_beginning_the_whole_answer_is_told_again(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x", "y")
        await answer.end()
        await client.until("finished")
        await client.send(type="resume", id="again", generation=answer.id)
        seen = await client.until("finished", "again")
    assert [frame["type"] for frame in seen] == ["resumed", "accepted", "started", "token", "token", "finished"]
    assert seen[1]["durability"] == "relaxed"
    assert seen[2]["epoch"] == answer.epoch


async def test_two_readers_may_read_one_generation(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (one, _), client_of(edge) as (two, _):
        answer = await opened(world, one, "a", "x")
        await two.send(type="resume", id="b", generation=answer.id, after=answer.cursor)
        await two.until("resumed")
        await answer.say("y")
        await answer.end()
        assert text_of(await one.until("finished")) == text_of(await two.until("finished")) == "y"


async def test_j2_a_cursor_the_channel_has_lost_is_told_with_the_oldest_position(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x", "y", "z")
        await world.valkey.xtrim(keys.response(answer.id), maxlen=1, approximate=False)
        await answer.end()
        await client.until("finished")
        await client.send(type="resume", id="b", generation=answer.id, after=f"{answer.epoch}-3")
        seen = await client.until("finished", "b")
    assert (seen[0]["recovered"], seen[0]["oldest"]) == (False, 5)
    assert text_of(seen) == "z"


async def test_j2_without_a_channel_nothing_is_recovered_and_it_is_said(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
        await answer.end()
        await client.until("finished")
    await world.valkey.delete(keys.response(answer.id))
    where = f"{url(edge)}/v1/generations/{answer.id}/events?after={answer.epoch}-2"
    seen, _ = await sse(where)
    assert [frame["type"] for frame in seen] == ["resumed", "error"]
    assert (seen[0]["recovered"], seen[0]["oldest"], seen[1]["reason"]) == (False, 0, "events_expired")
    _, _, body = await call("GET", where)
    assert [frame["type"] for frame in body["events"]] == ["resumed", "error"]
    assert body["done"]


async def test_what_began_while_the_store_was_away_is_found_by_the_router_that_took_it(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        tenant = (await opened(world, client, "a")).request.tenant
    generation = new_generation_id()
    line = str(Line(((0, 1),)).extend(EPOCH, 2))
    started = common_pb2.Event(epoch=EPOCH, position=2, started=common_pb2.Started(worker="hand", line=line))
    world.worker.push(generation, started, token(3, "x", EPOCH), token(4, "y", EPOCH), finished(5, EPOCH))
    # The store has no record of it, and there is no channel.
    world.router.tenants[generation] = tenant
    world.router.known[generation] = router_pb2.GetGenerationResponse(
        generation=generation, worker="hand", source=world.source, durability=common_pb2.DURABILITY_OFF
    )
    where = f"{url(edge)}/v1/generations/{generation}/events"
    seen, _ = await sse(where)
    assert text_of(seen) == "xy", seen
    assert seen[-1]["type"] == "finished"
    async with client_of(edge) as (client, _):
        await client.send(type="resume", id="b", generation=generation, after=f"{EPOCH}-3")
        assert text_of(await client.until("finished", "b")) == "y"


async def test_another_tenants_generation_is_as_unknown_as_none(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
    await world.valkey.hset(keys.generation(answer.id), "tenant", "somebody-else")
    unknown = "0197a0b0-0000-7000-8000-000000000000"
    told = []
    for id_ in (answer.id, unknown):
        status, _, body = await call("GET", f"{url(edge)}/v1/generations/{id_}/events?after={answer.cursor}")
        told.append((status, body["error"]["code"], body["error"]["message"].replace(id_, "")))
        status, _, body = await call(
            "GET", f"{url(edge)}/v1/generations/{id_}/events", headers={"Accept": "text/event-stream"}
        )
        assert (status, body["error"]["code"]) == (404, "generation_not_found")
    assert told[0] == told[1]
    assert told[0][:2] == (404, "generation_not_found")
    async with client_of(edge) as (client, _):
        await client.send(type="resume", id="b", generation=answer.id, after=answer.cursor)
        error = (await client.until("error"))[-1]
        assert (error["reason"], error["delivered_until"]) == ("generation_not_found", 0)


async def test_a_cursor_from_the_future_of_an_ended_answer_is_behind(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
        await answer.end()
        await client.until("finished")
        await client.send(type="resume", id="b", generation=answer.id, after=f"{answer.epoch}-99")
        seen = await client.until("finished", "b")
    assert seen[0]["behind"]
    assert not seen[0]["recovered"]


async def test_restore_gives_back_all_live_generations_of_a_connection(world: JournaledWorld) -> None:
    first, second = await world.edge(), await world.edge()
    async with client_of(first) as (client, hello):
        answers = [await opened(world, client, f"g{n}", f"{n}:", number=n + 1) for n in range(3)]
    async with client_of(second, additional_headers={RESTORE: hello["restore_id"]}) as (client, fresh):
        assert fresh["restore_id"] != hello["restore_id"]
        restored = (await client.until("restored"))[-1]
        assert restored["restore_id"] == hello["restore_id"]
        assert [row["id"] for row in restored["generations"]] == ["g0", "g1", "g2"]
        assert [row["cursor"] for row in restored["generations"]] == [answer.cursor for answer in answers]
        for number, answer in enumerate(answers):
            await answer.say(f"more {number}")
            await answer.end()
        seen: list[dict[str, Any]] = []
        while sum(frame["type"] == "finished" for frame in seen) < 3:
            seen.append(await client.receive())
    for number in range(3):
        assert text_of(seen, f"g{number}") == f"more {number}"
        assert next(f for f in seen if f["type"] == "resumed" and f["id"] == f"g{number}")["recovered"]


async def test_restore_takes_the_clients_own_cursors_and_knows_no_other_tenants(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, hello):
        answer = await opened(world, client, "a", "x", "y")
    await answer.end()
    async with client_of(edge) as (client, _):
        own = {answer.id: f"{answer.epoch}-3"}
        await client.send(type="restore", restore_id=hello["restore_id"], after=own)
        seen = await client.until("finished")
        assert text_of(seen, "a") == "y"
        await world.valkey.hset(keys.connection(hello["restore_id"]), "tenant", "somebody-else")
        await client.send(type="restore", restore_id=hello["restore_id"])
        assert (await client.until("restored"))[-1]["generations"] == []


async def test_a_restore_id_is_kept_for_the_grace_with_the_tenant_and_the_cursors(world: JournaledWorld) -> None:
    edge = await world.edge(resume_grace_s=5)
    async with client_of(edge) as (client, hello):
        answer = await opened(world, client, "a", "x", "y")
        await asyncio.sleep(1.3)
        kept = await world.valkey.hgetall(keys.connection(hello["restore_id"]))
        assert kept == {b"tenant": b"anonymous", answer.id.encode(): f"{answer.cursor} a".encode()}
        assert 5_000 <= await world.valkey.pttl(keys.connection(hello["restore_id"])) <= 8_000
    # Less than while it was read.
    async with asyncio.timeout(20):
        while (left_ms := await world.valkey.pttl(keys.connection(hello["restore_id"]))) > 6_100:
            await asyncio.sleep(0.05)
    assert left_ms >= 4_000
    status, headers, body = await call("GET", f"{url(edge)}/v1/generations", headers={RESTORE: hello["restore_id"]})
    assert (status, headers[RESTORE]) == (200, hello["restore_id"])
    where = f"/v1/generations/{answer.id}/events"
    assert body["generations"] == [{"generation": answer.id, "cursor": answer.cursor, "events_url": where}]
    # Shown on a poll, it stands for the cursor too.
    await answer.end()
    _, headers, body = await call("GET", url(edge) + where, headers={RESTORE: hello["restore_id"]})
    assert [frame["type"] for frame in body["events"]] == ["finished"]
    assert headers[RESTORE] == hello["restore_id"]


async def test_a_background_generation_is_read_by_long_polls_to_its_end(world: JournaledWorld) -> None:
    edge = await world.edge()
    asked = {"model": "simulated", "messages": [{"role": "user", "content": "hi"}], "idempotency_key": "k1"}
    status, headers, told = await call(
        "POST", f"{url(edge)}/v1/generations", json=asked, headers={"x-streamway-durability": "strict"}
    )
    assert status == 202
    request = await world.router.asked()
    assert (request.durability, request.idempotency_key) == (common_pb2.DURABILITY_STRICT, "k1")
    assert request.on_disconnect == common_pb2.ON_DISCONNECT_GRACE
    assert told["generation"] == request.generation
    assert headers["Location"] == told["events_url"] == f"/v1/generations/{request.generation}/events"
    assert (told["cursor"], told["durability"], len(headers[RESTORE])) == ("0-1", "relaxed", 32)
    answer = await world.answer()
    where, cursor, seen, done = url(edge) + told["events_url"], told["cursor"], list[dict[str, Any]](), False

    async def work() -> None:
        for number in range(5):
            await asyncio.sleep(0.15)
            await answer.say(f"{number} ")
        await answer.end()

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        polls = 0
        while not done:
            status, _, body = await call("GET", f"{where}?after={cursor}&wait=5")
            assert status == 200
            cursor, done, polls = body["cursor"], body["done"], polls + 1
            seen += body["events"]
    assert [frame["type"] for frame in seen] == ["started", *["token"] * 5, "finished"]
    assert text_of(seen) == "0 1 2 3 4 "
    assert 2 <= polls <= 8
    assert not world.router.cancelled


async def test_a_poll_without_news_returns_after_its_wait(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
        where = f"{url(edge)}/v1/generations/{answer.id}/events?after={answer.cursor}"
        began = asyncio.get_running_loop().time()
        _, _, body = await call("GET", f"{where}&wait=0.5")
        assert 0.5 <= asyncio.get_running_loop().time() - began < 5
        assert body == {"events": [], "cursor": answer.cursor, "done": False}
        for wait in ("61", "-1", "x"):
            status, _, body = await call("GET", f"{where}&wait={wait}")
            assert (status, body["error"]["param"]) == (400, "wait")
        status, _, body = await call("GET", f"{url(edge)}/v1/generations/{answer.id}/events?after=5")
        assert (status, body["error"]["param"]) == (400, "after")


async def test_a_browser_that_reconnects_after_the_end_hears_that_nothing_comes(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
        await answer.end()
        await client.until("finished")
    where = f"{url(edge)}/v1/generations/{answer.id}/events"
    seen, ids = await sse(where, **{"Last-Event-ID": f"{answer.epoch}-2"})
    assert [frame["type"] for frame in seen] == ["resumed", "token", "finished"]
    status, _, _ = await call("GET", where, headers={"Accept": "text/event-stream", "Last-Event-ID": ids[-1]})
    assert status == 204


async def test_delete_cancels_wherever_it_runs_and_twice(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
    for _ in range(2):
        status, _, body = await call("DELETE", f"{url(edge)}/v1/generations/{answer.id}")
        assert (status, body) == (200, {"generation": answer.id, "state": "running"})
    assert world.router.cancelled == [answer.id, answer.id]
    for id_ in ("nobody", "0197a0b0-0000-7000-8000-000000000000"):
        status, _, body = await call("DELETE", f"{url(edge)}/v1/generations/{id_}")
        assert (status, body["error"]["code"]) == (404, "generation_not_found")


async def test_a4_a_lost_socket_only_unsubscribes_and_a_cancel_stops_at_once(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
        client.socket.transport.abort()
    async with asyncio.timeout(20):
        while not any(command.HasField("unsubscribe") for command in world.worker.commands):
            await asyncio.sleep(0.02)
    assert not world.router.cancelled
    assert not world.worker.cancelled
    async with client_of(edge) as (client, _):
        await client.send(type="resume", id="b", generation=answer.id, after=answer.cursor)
        await client.until("resumed")
        async with asyncio.timeout(20):
            while len(world.worker.subscribed) < 2:
                await asyncio.sleep(0.02)
        await client.send(type="cancel", id="b")
        async with asyncio.timeout(20):
            while world.worker.cancelled != [answer.id]:
                await asyncio.sleep(0.02)


async def test_an_idempotency_key_attaches_to_the_earlier_generation(world: JournaledWorld) -> None:
    edge = await world.edge()
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x", "y")

        def attach(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
            assert request.idempotency_key == "k"
            return [accepted(request, "hand", "", durability=RELAXED, attached_to=answer.id)]

        world.router.answer = attach
        await client.open("b", "hi", idempotency_key="k")
        seen = await client.until("token", "b")
        assert (seen[0]["attached_to"], seen[0]["generation"]) == (answer.id, answer.id)
        await answer.say("z")
        await answer.end()
        seen += await client.until("finished", "b")
    assert text_of(seen, "b") == "xyz"


async def test_a_worker_that_is_lost_is_followed_to_the_one_that_takes_over(world: JournaledWorld) -> None:
    from tests.support.inference_service import HandServer, HandWorker

    edge = await world.edge(reattach_s=0.3)
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "one ", "two ")
        other = HandWorker()
        server = HandServer(other, world.shared)
        address = await server.start()
        assert world.worker_server is not None
        await world.worker_server.stop()
        await world.router.until(lambda: any(asked.lost_worker == "hand" for asked in world.router.located), 20)
        answer.epoch, answer.worker, answer.source, answer.name = 2 << 20 | 9, other, address, "other"
        await answer.begin()
        await answer.say("three")
        await answer.end()
        seen = await client.until("finished", within_s=20)
        await server.stop()
    assert [frame["type"] for frame in seen] == ["taken_over", "token", "finished"]
    assert seen[0]["position"] == 5


async def test_c2_an_edge_gives_a_worker_as_long_as_its_setting_says(world: JournaledWorld) -> None:
    edge = await world.edge(silence_s=0.6, reattach_s=5.0)
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "one ")
        # The worker's next sign of life comes in an hour.
        world.worker.beats = False
        async with asyncio.timeout(30):
            while world.worker.streams < 2:
                await asyncio.sleep(0.05)
        await answer.say("two")
        await answer.end()
        seen = await client.until("finished", within_s=20)
    assert text_of(seen) == "two"


async def test_f3_a_slow_reader_is_paused_and_gets_everything_later_and_the_others_at_once(
    world: JournaledWorld,
) -> None:
    edge = await world.edge(slow_bytes=64 * 1024, socket_send_bytes=16384)
    slow = await websockets.connect(socket_url(edge), max_queue=1, ping_interval=None, max_size=None)
    client = Frames(slow)
    await client.receive()
    answer = await opened(world, client, "s", "0")
    slow.transport.pause_reading()
    big = "x" * 20_000
    for _ in range(200):
        await answer.say(big)
    async with frames(socket_url(edge)) as quick:
        other = await opened(world, quick, "a", "ok", number=2)
        await other.end()
        await quick.until("finished", within_s=20)
    assert await metric(edge, "streamway_edge_pauses_total") >= 1
    await answer.end()
    slow.transport.resume_reading()
    seen = await client.until("finished", within_s=30)
    assert text_of(seen) == big * 200
    assert [frame["position"] for frame in seen if "position" in frame] == list(range(4, 205))
    assert await metric(edge, "streamway_edge_slow_consumers_total") == 0
    await slow.close()


async def test_f3_a_reader_that_takes_nothing_is_closed_resumably(world: JournaledWorld) -> None:
    edge = await world.edge(slow_bytes=64 * 1024, slow_client_s=0.5, socket_send_bytes=16384)
    slow = await websockets.connect(socket_url(edge), max_queue=1, ping_interval=None, max_size=None)
    client = Frames(slow)
    await client.receive()
    answer = await opened(world, client, "s", "0")
    slow.transport.pause_reading()
    for _ in range(100):
        await answer.say("x" * 20_000)
    async with asyncio.timeout(10):
        while not await metric(edge, "streamway_edge_slow_consumers_total"):
            await asyncio.sleep(0.1)
    assert not world.router.cancelled
    slow.transport.resume_reading()
    last = answer.epoch, 3
    with pytest.raises(websockets.ConnectionClosed):
        while True:
            frame = await client.receive(5)
            last = answer.epoch, frame["position"]
    assert slow.close_code == 4009
    await answer.end()
    async with client_of(edge, max_size=None) as (client, _):
        await client.send(type="resume", id="s", generation=answer.id, after=f"{last[0]}-{last[1]}")
        seen = await client.until("finished")
    assert [f["position"] for f in seen if f["type"] == "token"] == list(range(last[1] + 1, 104))


async def test_a_paused_generation_is_kept_alive_at_its_worker(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.edge.io.desk._TOUCH_S", 0.2)
    edge = await world.edge(slow_bytes=64 * 1024, socket_send_bytes=16384)
    slow = await websockets.connect(socket_url(edge), max_queue=1, ping_interval=None, max_size=None)
    client = Frames(slow)
    await client.receive()
    answer = await opened(world, client, "s", "0")
    slow.transport.pause_reading()
    await answer.say(*["x" * 20_000] * 100)
    before = len(world.worker.subscribed)
    async with asyncio.timeout(20):
        while len(world.worker.subscribed) < before + 3:
            await asyncio.sleep(0.05)
    last = [command.WhichOneof("command") for command in world.worker.commands]
    assert last.count("subscribe") - last.count("unsubscribe") <= 1
    slow.transport.resume_reading()
    await answer.end()
    assert len(text_of(await client.until("finished"))) == 100 * 20_000
    await slow.close()


async def test_f3_a_slow_sse_reader_is_paused_too(world: JournaledWorld) -> None:
    edge = await world.edge(slow_bytes=64 * 1024, socket_send_bytes=16384)
    body = {"model": "simulated", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    request = await RawRequest.post(f"{url(edge)}/v1/chat/completions", body)
    answer = await world.answer()
    await answer.say("0")
    assert await request.head() == 200
    request.reader._transport.pause_reading()  # type: ignore[attr-defined]
    big = "y" * 20_000
    for _ in range(200):
        await answer.say(big)
    assert await metric(edge, "streamway_edge_pauses_total") >= 1
    await answer.end()
    request.reader._transport.resume_reading()  # type: ignore[attr-defined]
    text = ""
    async for event in request.events():
        if event != "[DONE]":
            text += json.loads(event)["choices"][0]["delta"].get("content", "")
    assert text == "0" + big * 200
    request.cut()


async def test_f3_a_long_answer_is_replayed_piece_by_piece(world: JournaledWorld) -> None:
    edge = await world.edge(slow_bytes=16 * 1024)
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "0")
        await answer.say(*["z" * 5_000] * 100, live=False)
        await answer.end(live=False)
    seen, _ = await sse(f"{url(edge)}/v1/generations/{answer.id}/events")
    assert text_of(seen) == "0" + "z" * 500_000
    assert [frame["position"] for frame in seen if "position" in frame] == list(range(1, 105))
    text, cursor, done, polls = "", "0-0", False, 0
    while not done:
        _, _, body = await call("GET", f"{url(edge)}/v1/generations/{answer.id}/events?after={cursor}")
        text, cursor, done, polls = text + text_of(body["events"]), body["cursor"], body["done"], polls + 1
    assert text == "0" + "z" * 500_000
    assert polls > 10


async def test_a_chat_stream_with_grace_goes_on_by_its_cursor(world: JournaledWorld) -> None:
    edge = await world.edge()
    body = {"model": "simulated", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-streamway-on-disconnect": "grace", "Idempotency-Key": "k"}
    request = await RawRequest.post(f"{url(edge)}/v1/chat/completions", body, headers)
    answer = await world.answer()
    assert answer.request.on_disconnect == common_pb2.ON_DISCONNECT_GRACE
    assert answer.request.idempotency_key == "k"
    await answer.say("one ")
    assert await request.head() == 200
    assert len(request.headers[RESTORE.lower()]) == 32
    last = ""
    async for chunk in request.chunks():
        last = chunk.decode().split("id: ")[-1].split("\n")[0]
        break
    request.cut()
    assert last == answer.cursor
    await answer.say("two")
    await answer.end()
    seen, _ = await sse(f"{url(edge)}/v1/generations/{answer.id}/events", **{"Last-Event-ID": last})
    assert text_of(seen) == "two"
    assert not world.router.cancelled


async def test_l1_going_away_tells_the_cursors_and_what_runs_can_be_resumed_elsewhere(world: JournaledWorld) -> None:
    first, second = await world.edge(drain_grace_s=0.3), await world.edge()
    async with client_of(first) as (client, _):
        answer = await opened(world, client, "a", "x")
        async with asyncio.TaskGroup() as group:
            group.create_task(first.drain())
            going = (await client.until("going_away"))[-1]
            assert going["live"] == [{"id": "a", "generation": answer.id, "cursor": answer.cursor}]
            await asyncio.wait_for(client.socket.wait_closed(), 10)
        assert client.socket.close_code == 1001
    assert not world.router.cancelled
    async with client_of(second) as (client, _):
        await client.send(type="resume", id="a", generation=answer.id, after=going["live"][0]["cursor"])
        await answer.say("y")
        await answer.end()
        assert text_of(await client.until("finished")) == "y"


async def metric(edge: Edge, name: str) -> float:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{edge.operations_address}/metrics") as response,
    ):
        for line in (await response.text()).splitlines():
            if line.startswith(name) and line[len(name)] in " {":
                return float(line.rsplit(" ", 1)[1])
    return 0.0


@pytest.mark.parametrize("way", ["finished", "resumed", "left", "sse"])
async def test_f7_nothing_of_a_generation_stays(world: JournaledWorld, way: str) -> None:
    edge = await world.edge(resume_grace_s=5)
    live = edge._desk._live
    async with client_of(edge) as (client, _):
        answer = await opened(world, client, "a", "x")
        if way == "resumed":
            await client.send(type="resume", id="b", generation=answer.id)
            await client.until("token", "b")
        ghosts = [weakref.ref(generation) for generation in live]
        gc.disable()
        try:
            if way == "left":
                client.socket.transport.abort()
            elif way == "sse":
                reading = asyncio.get_running_loop().create_task(sse(f"{url(edge)}/v1/generations/{answer.id}/events"))
                async with asyncio.timeout(10):
                    while len(live) < 2:
                        await asyncio.sleep(0.01)
                ghosts += [weakref.ref(generation) for generation in live]
                await answer.end()
                assert (await reading)[0][-1]["type"] == "finished"
                del reading
            else:
                await answer.end()
                await client.until("finished", "b" if way == "resumed" else "a")
            async with asyncio.timeout(20):
                while live or any(ghost() for ghost in ghosts) or (way == "left" and edge._websockets._open):
                    await asyncio.sleep(0.05)
        finally:
            gc.enable()
