"""TaskScope: no task is lost, none outlives its scope, no failure is silent."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from streamway.runtime.tasks import TaskScope


async def forever() -> None:
    await asyncio.Event().wait()


async def test_leaving_the_scope_cancels_and_waits() -> None:
    ended = []

    async def work() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async with TaskScope("test") as scope:
        scope.spawn(work(), "a")
        scope.spawn(work(), "b")
        await asyncio.sleep(0)
        assert len(scope) == 2
    assert ended == [True, True]
    assert len(scope) == 0


async def test_one_failure_is_logged_and_takes_nobody_down() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with capture_logs() as logs:
        async with TaskScope("test") as scope:
            other = scope.spawn(forever(), "other")
            failed = scope.spawn(fail(), "failing")
            await asyncio.wait([failed])
            assert not other.done()
    (entry,) = [entry for entry in logs if entry["event"] == "task_failed"]
    assert entry["task"] == "test/failing"
    assert isinstance(entry["exc_info"], ValueError)


async def test_a_closed_scope_takes_no_more_and_leaves_no_unawaited_coroutine() -> None:
    scope = TaskScope("test")
    await scope.close()
    with pytest.raises(RuntimeError, match="test is closed"):
        scope.spawn(forever(), "late")


async def test_a_task_may_close_the_scope_it_lives_in() -> None:
    scope = TaskScope("test")
    other = scope.spawn(forever(), "other")

    async def closes() -> str:
        await scope.close()
        return "survived"

    assert await scope.spawn(closes(), "self") == "survived"
    assert other.cancelled()


async def test_a_task_that_ends_is_forgotten_at_once() -> None:
    async with TaskScope("test") as scope:
        await scope.spawn(asyncio.sleep(0), "short")
        await asyncio.sleep(0)
        assert len(scope) == 0
