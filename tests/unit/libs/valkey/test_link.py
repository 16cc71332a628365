"""When the store counts as silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.valkey.link import Link
from tests.support.valkey_server import ValkeyServer


@pytest.fixture
async def link(valkey_server: ValkeyServer) -> AsyncIterator[Link]:
    async with TaskScope("test") as scope:
        made = Link(valkey_server.url, SystemClock())
        scope.spawn(made.run(), "link")
        await made.session()
        yield made


async def test_a_store_that_owes_an_answer_is_silent_until_it_answers(link: Link) -> None:
    session = await link.session()
    assert link.quiet_s == 0
    # The pause is answered before it begins.
    await session.call("CLIENT", "PAUSE", 700, "ALL")
    answer = asyncio.ensure_future(session.call("PING"))
    async with asyncio.timeout(20):
        while link.quiet_s < 0.3:
            await asyncio.sleep(0.01)
        assert not answer.done()
        assert await answer == b"PONG"
    assert link.quiet_s == 0


async def test_while_the_loop_is_busy_nobody_is_silent(link: Link) -> None:
    session = await link.session()
    answer = asyncio.ensure_future(session.call("PING"))
    await asyncio.sleep(0)
    time.sleep(0.5)
    assert session.owed
    assert link.quiet_s < 0.3
    assert await answer == b"PONG"
    assert link.quiet_s == 0


async def test_silence_is_told_again_after_a_quiet_time(link: Link) -> None:
    told: list[float] = []

    class Listener:
        def connected(self, session: object) -> None: ...

        def lost(self) -> None: ...

        def silent(self) -> None:
            told.append(time.monotonic())

    link.listen(Listener())
    session = await link.session()
    for _ in range(2):
        # Nothing is owed, so nobody looks.
        await asyncio.sleep(0.2)
        assert not told
        await session.call("CLIENT", "PAUSE", 700, "ALL")
        assert await session.call("PING") == b"PONG"
        assert told
        told.clear()
        await session.call("PING")
        told.clear()
