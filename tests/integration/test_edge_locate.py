"""An edge asks where its generations are: many questions, few messages, no calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from services.edge.io.metrics import EdgeMetrics
from services.edge.io.routers import Routers
from streamway.config import SharedSettings
from streamway.errors import GenerationNotFound, RouterUnavailable
from streamway.following import Located, Place
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import new_generation_id
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, router_pb2
from tests.support.hand_router import HandRouter, RouterServer


@asynccontextmanager
async def _asking(number: int = 1) -> AsyncIterator[tuple[Routers, list[HandRouter], list[RouterServer]]]:
    shared, scope = SharedSettings(), TaskScope("test")
    routers = [HandRouter() for _ in range(number)]
    servers = [RouterServer(router, shared) for router in routers]
    addresses = [await server.start() for server in servers]
    metrics = EdgeMetrics(CollectorRegistry())
    asking = Routers(addresses, None, shared, scope, SystemClock(), metrics, answer_s=10, batch_done=lambda: None)
    try:
        async with asyncio.timeout(20):
            while not all(router.streams for router in routers):
                await asyncio.sleep(0.01)
        yield asking, routers, servers
    finally:
        await asking.close()
        await scope.close()
        for server in servers:
            await server.stop()


def _known(router: HandRouter, generation: str) -> None:
    router.known[generation] = router_pb2.GetGenerationResponse(
        generation=generation, worker="w", source="h:1", epoch=7, durability=common_pb2.DURABILITY_RELAXED
    )
    router.tenants[generation] = "t"


async def _locate(asking: Routers, generation: str) -> Located:
    return await asking.locate(generation, "t", wait_s=1.0, above_epoch=0, lost_worker="gone")


async def test_a_thousand_questions_at_once_are_few_messages_and_no_call() -> None:
    async with _asking() as (asking, (router,), _):
        generations = [new_generation_id() for _ in range(1000)]
        for generation in generations:
            _known(router, generation)
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_locate(asking, generation)) for generation in generations]
        assert {task.result() for task in asked} == {Located(Place("w", "h:1"), 7, worker="w")}
        assert len(router.located) == 1000
        assert {request.lost_worker for request in router.located} == {"gone"}
        assert (router.calls, router.messages) == (0, 1)


async def test_what_one_router_alone_knows_is_found_whichever_is_asked_first() -> None:
    async with _asking(3) as (asking, routers, _):
        for number in range(12):
            generation = new_generation_id()
            _known(routers[number % 3], generation)
            assert (await _locate(asking, generation)).epoch == 7
            await asking.cancel(generation, "t")
        firsts = [len(router.located) for router in routers]
        # Some were found at once, and some not.
        assert 12 < sum(firsts) < 36
        with pytest.raises(GenerationNotFound):
            await _locate(asking, new_generation_id())
        assert [len(router.located) for router in routers] == [count + 1 for count in firsts]


async def test_a_broken_stream_asks_the_next() -> None:
    async with _asking(2) as (asking, routers, servers):
        generation = new_generation_id()
        for router in routers:
            _known(router, generation)
        await _locate(asking, generation)
        first = next(index for index, router in enumerate(routers) if router.located)
        routers[first].known[generation].epoch = 0
        asked = asyncio.get_running_loop().create_task(_locate(asking, generation))
        await routers[first].until(lambda: len(routers[first].located) == 2)
        await servers[first].stop()
        async with asyncio.timeout(10):
            assert (await asked).epoch == 7
        assert len(routers[1 - first].located) == 1


async def test_without_a_router_it_is_said() -> None:
    async with _asking() as (asking, _, servers):
        await servers[0].stop()
        async with asyncio.timeout(10):
            with pytest.raises(RouterUnavailable):
                while True:
                    try:
                        await _locate(asking, new_generation_id())
                    except GenerationNotFound:
                        await asyncio.sleep(0.01)
