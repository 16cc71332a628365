from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import pytest
import uvloop

from streamway.runtime.listening import listening


@pytest.fixture(params=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as made:
        yield made


async def _answer_after(delay_s: float) -> bytes:
    """An answer through a real pipe, from a thread: it comes whether or not the loop runs."""
    loop = asyncio.get_running_loop()
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    with os.fdopen(ours, "rb", 0) as pipe:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)

        def answer() -> None:
            time.sleep(delay_s)
            os.write(theirs, b"!")
            os.close(theirs)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            return await reader.read(1)
        finally:
            transport.close()
            await asyncio.to_thread(thread.join)


def test_an_answer_that_came_while_the_loop_was_blocked_is_heard(runner: asyncio.Runner) -> None:
    async def ask() -> bytes:
        loop = asyncio.get_running_loop()
        # From the first turn on, and beyond the deadline.
        loop.call_soon(time.sleep, 0.8)
        async with listening(0.5):
            return await _answer_after(0.1)

    assert runner.run(ask()) == b"!"


def test_blocks_in_the_middle_and_at_the_end_do_not_count_either(runner: asyncio.Runner) -> None:
    async def ask() -> bytes:
        loop = asyncio.get_running_loop()
        for at in (0.1, 0.6, 1.1, 1.6):
            loop.call_later(at, time.sleep, 0.45)
        async with listening(0.8):
            return await _answer_after(1.3)

    assert runner.run(ask()) == b"!"


def test_who_really_does_not_answer_is_found_in_time() -> None:
    async def ask() -> float:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with listening(0.5):
                await asyncio.Event().wait()
        return time.monotonic() - began

    assert 0.5 <= asyncio.run(ask()) < 5.0


def test_who_does_not_answer_is_found_although_the_loop_was_blocked_and_by_a_loop_that_is_always_busy() -> None:
    async def busy() -> None:
        while True:
            time.sleep(0.05)
            await asyncio.sleep(0)

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            async with listening(0.2):
                asyncio.get_running_loop().call_later(0.05, time.sleep, 0.5)
                await asyncio.Event().wait()
        task = asyncio.get_running_loop().create_task(busy())
        with pytest.raises(TimeoutError):
            async with listening(0.2):
                await asyncio.Event().wait()
        task.cancel()

    asyncio.run(ask())


def test_it_leaves_other_cancels_and_errors_as_they_are() -> None:
    async def ask() -> None:
        async def waits() -> None:
            async with listening(60):
                await asyncio.Event().wait()

        task = asyncio.get_running_loop().create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        with pytest.raises(ValueError, match="mine"):
            async with listening(60):
                raise ValueError("mine")

    asyncio.run(ask())
