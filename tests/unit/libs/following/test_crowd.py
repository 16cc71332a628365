"""Who comes back together asks together, and first words go before everything else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import hiredis
import pytest

from streamway.following.crowd import Crowd, Question
from streamway.runtime.tasks import TaskScope
from streamway.valkey.session import Argument, LinkLost, Reply


class Store:
    """A `Sessions` and its one `Session`: answers when the test says so."""

    def __init__(self) -> None:
        self.alive = True
        self.there = True
        self.asked: list[str] = []
        self._waiting: deque[tuple[str, Callable[[Reply], None]]] = deque()
        self._calls: list[asyncio.Future[Reply]] = []

    async def session(self) -> Store:
        if not self.there:
            await asyncio.Event().wait()
        return self

    def send_group(self, packed: bytes, on_replies: Sequence[Callable[[Reply], None]]) -> None:
        name = packed.decode()
        self.asked.append(name)
        self._waiting.extend((name, on_reply) for on_reply in on_replies)

    async def call(self, *_: Argument) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls.append(future)
        self._waiting.append(("PING", lambda reply: None if future.done() else future.set_result(reply)))
        return await future

    async def answer(self) -> None:
        """Everything that was asked so far, and lets what follows from it happen."""
        for _ in range(len(self._waiting)):
            name, on_reply = self._waiting.popleft()
            on_reply(hiredis.ReplyError("ERR no") if name == "refused" else name)
        await turns()

    async def break_off(self) -> None:
        self._waiting.clear()
        for future in self._calls:
            if not future.done():
                future.set_exception(LinkLost())
        await turns()


class Asks(Question):
    def __init__(self, name: str, log: list[str], then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.name, self.log, self.then = name, log, then

    def packed(self) -> tuple[bytes, int]:
        return self.name.encode(), 2

    def answered(self, replies: Sequence[Any]) -> None:
        assert list(replies) == [self.name] * 2
        self.log.append(self.name)
        self.then()

    def unanswered(self) -> None:
        self.log.append(f"no {self.name}")


async def turns() -> None:
    """Lets the loop run."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def scope() -> AsyncIterator[TaskScope]:
    async with TaskScope("test") as made:
        yield made


async def test_many_are_asked_in_bunches_and_each_is_told_when_its_answer_comes(scope: TaskScope) -> None:
    store, log = Store(), list[str]()
    crowd = Crowd(store, scope, 30.0)
    for number in range(100):
        crowd.ask(Asks(str(number), log))
    assert store.asked == []
    await turns()
    assert len(store.asked) == 100
    await store.answer()
    assert log == [str(number) for number in range(100)]


async def test_the_rest_waits_for_the_first_words_of_others(scope: TaskScope) -> None:
    store, log = Store(), list[str]()
    crowd = Crowd(store, scope, 30.0)
    crowd.later(Asks("rest", log))
    crowd.later(lambda: log.append("done"))
    crowd.ask(Asks("first", log))
    await turns()
    assert (store.asked, log) == (["first"], [])
    await store.answer()
    assert log == ["first", "done"]
    await store.answer()
    assert log == ["first", "done", "rest"]


async def test_a_crowd_without_an_end_keeps_the_rest_out_for_a_moment_only(scope: TaskScope) -> None:
    store, log = Store(), list[str]()
    crowd = Crowd(store, scope, 30.0)
    crowd.ask(Asks("never answered", log))
    crowd.later(lambda: log.append("done"))
    await turns()
    assert log == []
    async with asyncio.timeout(10):
        while not log:
            await asyncio.sleep(0.01)
    assert log == ["done"]


async def test_while_more_may_come_the_rest_waits_for_a_moment_of_calm(scope: TaskScope) -> None:
    store, log, done, now = Store(), list[str](), list[int](), 100.0
    crowd = Crowd(store, scope, 30.0, lambda: now)
    for number in range(50):
        crowd.ask(Asks(str(number), log))
    await turns()
    await store.answer()
    for number in range(1000):
        crowd.later(lambda number=number: done.append(number))  # type: ignore[misc] # the lambda's default is the number
    await turns()
    assert len(log) == 50
    assert len(done) < 500, "only what trickles goes on"
    now += 1.0
    async with asyncio.timeout(10):
        while len(done) < 1000:
            await asyncio.sleep(0.01)
    assert done == list(range(1000))


async def test_a_few_need_no_calm(scope: TaskScope) -> None:
    store, log, done = Store(), list[str](), list[int]()
    crowd = Crowd(store, scope, 30.0, lambda: 100.0)
    crowd.ask(Asks("one", log))
    await turns()
    await store.answer()
    for number in range(100):
        crowd.later(lambda number=number: done.append(number))  # type: ignore[misc] # as above
    await turns()
    assert len(done) == 100


async def test_a_further_page_may_be_asked_for_from_within_an_answer(scope: TaskScope) -> None:
    store, log = Store(), list[str]()
    crowd = Crowd(store, scope, 30.0)
    page = Asks("page", log)
    crowd.ask(Asks("first", log, lambda: crowd.later(page)))
    await turns()
    await store.answer()
    await store.answer()
    assert log == ["first", "page"]


async def test_a_broken_connection_is_no_answer(scope: TaskScope) -> None:
    store, log = Store(), list[str]()
    crowd = Crowd(store, scope, 30.0)
    crowd.ask(Asks("a", log))
    crowd.ask(Asks("b", log))
    await turns()
    await store.break_off()
    assert log == ["no a", "no b"]
    crowd.ask(Asks("c", log))
    await turns()
    await store.answer()
    assert log == ["no a", "no b", "c"]


async def test_a_store_that_is_away_is_no_answer_after_the_wait(scope: TaskScope) -> None:
    store, log = Store(), list[str]()
    store.there = False
    crowd = Crowd(store, scope, 0.01)
    crowd.ask(Asks("a", log))
    async with asyncio.timeout(10):
        while not log:
            await asyncio.sleep(0.01)
    assert log == ["no a"]


async def test_a_refusal_and_a_fault_concern_one_question_alone(scope: TaskScope) -> None:
    store, log = Store(), list[str]()
    crowd = Crowd(store, scope, 30.0)

    def fault() -> None:
        raise RuntimeError("a sink that is broken")

    crowd.ask(Asks("refused", log))
    crowd.ask(Asks("broken", log, fault))
    crowd.ask(Asks("well", log))
    await turns()
    await store.answer()
    assert log == ["no refused", "broken", "well"]


async def test_one_goes_ahead_to_find_a_worker(scope: TaskScope) -> None:
    crowd = Crowd(Store(), scope, 30.0)
    assert crowd.goes_ahead("w1")
    assert not crowd.goes_ahead("w1")
    assert crowd.goes_ahead("w2")
