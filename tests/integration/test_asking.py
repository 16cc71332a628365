"""The chat's side of `Generate` and `Resume`, against a gRPC server that breaks off where a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.supervisor.core.answer import Answer
from services.supervisor.io.asking import Asker, BrokenOff
from streamway.config import SharedSettings
from streamway.errors import EngineFailed, GenerationNotFound, GoingAway, StreamwayError
from streamway.rpc import MeshServer, MountedService
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc
from tests.support.ports import free_port

WORDS = ["Rain ", "falls ", "and ", "becomes ", "a ", "river."]


def events(generation: str, after: int, last: int) -> list[common_pb2.Event]:
    """Positions `after` + 1 … `last`: accepted, a token a word, finished."""
    made = [common_pb2.Event(generation=generation, position=1, accepted=common_pb2.Accepted(worker="w1"))]
    for number, word in enumerate(WORDS, 2):
        token = common_pb2.Token(text=word, units=1)
        made.append(common_pb2.Event(generation=generation, epoch=7, position=number, token=token))
    finished = common_pb2.Finished(finish_reason="stop")
    made.append(common_pb2.Event(generation=generation, epoch=7, position=len(WORDS) + 2, finished=finished))
    return made[after:last]


class BreakingRouter(router_pb2_grpc.RouterServiceServicer):
    """Gives what `cuts` say, call by call: up to a position, or the error that is raised in its place. Then everything."""

    def __init__(self, *cuts: int | StreamwayError) -> None:
        self.cuts = list(cuts)
        self.asked: list[str] = []
        self.resumed: list[str] = []
        self.cancelled: list[str] = []
        self.hold = False

    async def Generate(self, request: router_pb2.GenerateRequest, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request.request.generation)
        async for batch in self._give(request.request.generation, 0, context):
            yield router_pb2.GenerateResponse(events=batch)

    async def Resume(self, request: router_pb2.ResumeRequest, context: Any) -> AsyncIterator[Any]:
        self.resumed.append(request.cursor)
        after = int(request.cursor.partition("-")[2])
        told = common_pb2.Event(resumed=common_pb2.Resumed(recovered=True, after=request.cursor))
        async for batch in self._give(request.generation, after, context):
            yield router_pb2.ResumeResponse(events=[told, *batch])

    async def Cancel(self, request: router_pb2.CancelRequest, context: Any) -> router_pb2.CancelResponse:
        self.cancelled.append(request.generation)
        return router_pb2.CancelResponse()

    async def _give(self, generation: str, after: int, context: Any) -> AsyncIterator[list[common_pb2.Event]]:
        cut = self.cuts.pop(0) if self.cuts else len(WORDS) + 2
        if isinstance(cut, StreamwayError):
            raise cut
        # One event of what it has given already: the same may come again after a break.
        yield events(generation, max(after - 1, 0), cut)
        if self.hold:
            await asyncio.sleep(60)


@asynccontextmanager
async def asking(router: BreakingRouter, patience_s: float = 20.0) -> AsyncIterator[Asker]:
    shared, port = SharedSettings(), free_port()
    service = MountedService("streamway.v1.RouterService", router, router_pb2_grpc.add_RouterServiceServicer_to_server)
    server = MeshServer("127.0.0.1", port, shared, [service])
    await server.start()
    try:
        yield Asker([server.address], shared, (), patience_s)
    finally:
        await server.stop(1)


def question() -> common_pb2.GenerationRequest:
    return common_pb2.GenerationRequest(model="m", messages=[common_pb2.Message(role="user", content="?")])


async def ask(router: BreakingRouter) -> tuple[Answer, str]:
    answer, shown = Answer(), list[str]()
    async with asking(router) as asker:
        await asker.ask(question(), answer, shown.append)
    return answer, "".join(shown)


async def test_what_breaks_is_read_on_behind_the_last_word() -> None:
    router = BreakingRouter(3, 5, GoingAway("router"), 7)
    answer, shown = await ask(router)
    assert shown == answer.text == "".join(WORDS)
    assert (answer.over, answer.finish, answer.worker) == (True, "stop", "w1")
    assert len(router.asked) == 1, "and never asked again"
    assert router.resumed == ["7-3", "7-5", "7-5", "7-7"]


async def test_a_question_that_may_be_lost_is_looked_for_before_it_is_asked_again() -> None:
    router = BreakingRouter(0, GenerationNotFound("x"))
    answer, shown = await ask(router)
    assert shown == "".join(WORDS)
    assert router.asked == [answer.generation] * 2, "under the same id: what was taken after all is read"
    assert router.resumed == ["0-0"]
    router = BreakingRouter(0)
    await ask(router)
    assert (len(router.asked), router.resumed) == (1, ["0-0"]), "it was taken"


async def test_an_error_ends_it_and_an_unknown_generation_is_not_asked_for() -> None:
    with pytest.raises(StreamwayError) as caught:
        await ask(BreakingRouter(4, EngineFailed("w1", "it fell over")))
    assert caught.value.name == "engine_failed"
    async with asking(BreakingRouter(GenerationNotFound("x"))) as asker:
        with pytest.raises(GenerationNotFound):
            await asker.read_on(Answer("x"), lambda _: None)


async def test_leaving_it_cancels_the_generation() -> None:
    router = BreakingRouter(4)
    router.hold = True
    begun, answer = asyncio.Event(), Answer()
    async with asking(router) as asker, asyncio.timeout(20):
        task = asyncio.create_task(asker.ask(question(), answer, lambda _: begun.set()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert router.cancelled == [answer.generation]


async def test_it_gives_up_after_a_while_and_keeps_its_cursor() -> None:
    router = BreakingRouter(4, *[4] * 50)
    answer = Answer()
    async with asking(router, patience_s=0.5) as asker:
        with pytest.raises(BrokenOff):
            await asker.ask(question(), answer, lambda _: None)
    assert (answer.cursor, answer.over) == ("7-4", False)
