"""The same id opened again at the same router: an edge that lost its stream before it heard of the first."""

from __future__ import annotations

from redis.asyncio import Redis

from streamway.errors import from_status
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.support.inference_service import finished, started, token
from tests.support.journaling_worker import words
from tests.support.router_mesh import ask, mesh, until
from tests.support.takeover_mesh import ranges_of, takeover_mesh, text_of
from tests.support.valkey_server import ValkeyServer

LANE = keys.lane("w0", "gold")


async def test_what_runs_is_attached_to(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        for durability in (common_pb2.DURABILITY_RELAXED, common_pb2.DURABILITY_OFF):
            first, second = made.connect(), made.connect()
            request = ask(durability=durability)
            assert (await first.first(await first.open(request))).accepted.attached_to == ""
            await first.close()
            told = (await second.first(await second.open(request))).accepted
            assert (told.attached_to, told.worker) == (request.generation, "w0")
            assert (told.source, told.durability) == (made.workers[0].server.address, durability)
            await second.close()
        assert await valkey.xlen(LANE) == 2


async def test_while_the_first_is_being_decided_the_second_waits_and_nothing_is_cancelled(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        for leaving in (common_pb2.ON_DISCONNECT_GRACE, common_pb2.ON_DISCONNECT_CANCEL):
            before = await valkey.xlen(LANE)
            first, second = made.connect(), made.connect()
            request = ask(on_disconnect=leaving)
            await valkey.client_pause(700)
            await first.open(request)
            await until(lambda: made.app.deciding == 1)
            await second.open(request)
            await until(lambda: made.app.deciding == 2)
            await first.close()
            told = (await second.first(request.generation)).accepted
            assert told.worker == "w0"
            assert await valkey.xlen(LANE) == before + 1
            await second.close()
        assert made.workers[0].hand.cancelled == []


async def test_a_relayed_one_is_read_from_its_beginning(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with takeover_mesh(valkey_server.url, workers=1, pace_s=0.03) as ((made,), workers):
        first, second = made.connect(), made.connect()
        request = ask()
        await first.open(request, location=False)
        await until(lambda: text_of(first.of(request.generation)).count(" ") >= 3)
        await first.close()
        await second.open(request, location=False)
        await until(lambda: "finished" in second.kinds(request.generation), 20)
        assert text_of(second.of(request.generation)) == words(20)
        assert ranges_of(second.of(request.generation)) == list(range(1, 24))
        assert workers[0].began == [(request.generation, 1)]
        await second.close()


async def test_another_request_or_another_tenant_under_a_live_id_is_a_duplicate(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        first, second = made.connect(), made.connect()
        one = await first.open(ask("a", tenant="acme"))
        await first.first(one)
        await second.open(ask("b", tenant="acme", generation=one))
        await second.open(ask("a", tenant="bolt", generation=one))
        await until(lambda: len(second.of(one)) == 2)
        assert [from_status(event.error.status).name for event in second.of(one)] == ["duplicate_id"] * 2
        await first.close()
        await second.close()


async def test_a_second_open_on_one_stream_is_refused_and_the_first_goes_on(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream, hand = made.connect(), made.workers[0].hand
        request = ask()
        await stream.open(request, location=False)
        await stream.first(request.generation)
        await stream.open(request, location=False)
        await until(lambda: stream.kinds(request.generation) == ["accepted", "error"])
        hand.push(request.generation, started(2), token(3, "x"))
        await until(lambda: stream.kinds(request.generation)[-1] == "token")
        await stream.close()
        hand.push(request.generation, finished(4))
