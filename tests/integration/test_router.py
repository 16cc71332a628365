"""The router with real gRPC and a real Valkey; its workers are written by hand."""

from __future__ import annotations

from redis.asyncio import Redis

from streamway.lanes import request_of
from tests.support.inference_service import finished
from tests.support.router_mesh import ask, mesh, until
from tests.support.valkey_server import ValkeyServer


async def test_an_open_is_accepted_with_a_location_and_its_task_lies_in_the_workers_lane(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        stream, worker = made.connect(), made.workers[0]
        generation = await stream.open(ask("hello", session="abc"))
        event = await stream.first(generation)
        assert event.position == 1
        assert event.accepted.worker == "w0"
        assert event.accepted.source == worker.server.address
        assert event.accepted.route == "home"
        assert event.accepted.cache == "off"
        assert event.accepted.cursor == "0-1"
        assert len(event.accepted.session) == 16
        tasks = await worker.take()
        assert [(task.copy.generation, task.copy.attempt) for task in tasks] == [(generation, 1)]
        found = (await request_of(valkey, [generation]))[0]
        assert found is not None
        request, state, _ = found
        assert state == "queued"
        assert request.messages[0].content == "hello"
        assert request.session == event.accepted.session
        assert request.traceparent.startswith("00-")
        await until(lambda: bool(worker.hand.subscribed))
        worker.hand.push(generation, finished(2))
        await until(lambda: made.app.in_flight == 0)
        await stream.close()
