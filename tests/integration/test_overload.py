"""D4 at one router: three times what its worker can do, half of it bulk."""

from __future__ import annotations

import asyncio
import time

import pytest
from redis.asyncio import Redis

from streamway.errors import from_status
from streamway.lanes import TakenTask
from streamway.valkey import keys
from tests.support.inference_service import finished
from tests.support.router_mesh import ConnectStream, Mesh, ask, mesh
from tests.support.valkey_server import ValkeyServer

SLOTS, DEPTH, SERVICE_S = 8, 4, 0.2
OFFERED_PER_S, LOAD_S = 3 * SLOTS / SERVICE_S, 4.0


class Server:
    """A worker with so many slots, each busy for the time of service with one task; the first lane first."""

    def __init__(self, made: Mesh) -> None:
        self._worker = made.workers[0]
        self._made = made
        # Of all slots together, since each had its first task.
        self.busy_s = self.idle_s = 0.0
        self._waiting: asyncio.Queue[TakenTask] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SLOTS):
                group.create_task(self._slot())
            while True:
                for _ in range(10):
                    room = SLOTS - self._waiting.qsize()
                    tasks = await self._worker.lane.take(dict.fromkeys(keys.CLASSES, room)) if room > 0 else []
                    for task in tasks:
                        self._waiting.put_nowait(task)
                    await asyncio.sleep(0.01)
                await self._made.renew()

    async def _slot(self) -> None:
        task = await self._waiting.get()
        while True:
            began = time.monotonic()
            await asyncio.sleep(SERVICE_S)
            await self._worker.lane.finish([task])
            self._worker.hand.push(task.copy.generation, finished(3, prompt_tokens=1, completion_tokens=1))
            ended = time.monotonic()
            task = await self._waiting.get()
            self.busy_s += ended - began
            self.idle_s += time.monotonic() - ended


@pytest.mark.alone
async def test_d4_at_three_times_capacity_slots_stay_busy_and_the_rest_is_told_when_to_come_back(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    fields = {"slots": str(SLOTS), "preload_depth": str(DEPTH)}
    async with mesh(valkey, valkey_server.url, worker_fields=fields, poll_s=0.1) as made:
        stream, server = made.connect(), Server(made)
        running = asyncio.get_running_loop().create_task(server.run())
        asked = await _load(stream)
        busy = server.busy_s / (server.busy_s + server.idle_s)
        events = [await stream.first(generation, 20) for generation in asked]
        accepted = [event for event in events if event.WhichOneof("event") == "accepted"]
        problems = [from_status(event.error.status) for event in events if event.WhichOneof("event") == "error"]
        assert len(accepted) + len(problems) == len(asked)
        assert {problem.name for problem in problems} == {"queue_full"}
        assert all(problem.row.http == 429 and problem.retry_after_s for problem in problems)
        # Not a rate: on a machine that is busy with other things everything here is slower alike.
        assert busy >= 0.9, "the slots had work"
        bulk = [event for event in accepted if event.generation in asked and asked[event.generation] < 0]
        assert bulk, "bulk is not shut out"
        # When the load is gone a place comes free at once.
        async with asyncio.timeout(10):
            while (await stream.first(await stream.open(ask()), 10)).WhichOneof("event") != "accepted":
                await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.wait({running})
        await stream.close()


async def _load(stream: ConnectStream) -> dict[str, int]:
    """Opens at the offered rate, whatever becomes of it; the priority of each generation."""
    asked: dict[str, int] = {}
    began = time.monotonic()
    while (passed := time.monotonic() - began) < LOAD_S:
        while len(asked) < passed * OFFERED_PER_S:
            priority = -1 if len(asked) % 2 else 0
            asked[await stream.open(ask(f"{len(asked)}", priority=priority))] = priority
        await asyncio.sleep(0.005)
    return asked
