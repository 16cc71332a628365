"""Tests of timers on a loop whose clock jumps to the next one: exact on any machine, and over at once.

    @in_virtual_time
    async def test_a_beat_comes_after_a_whole_turn() -> None:
        await asyncio.sleep(3600)                   # takes no time, and no other timer fires late

Only for what waits for nothing but timers: a file or a socket has no part in this time.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import ParamSpec

import pytest

_P = ParamSpec("_P")


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing; what it would have waited is added to `now`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError("everything waits, and no timer is set")
            self.now += max(timeout, 0.0)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_virtual_time(test: Callable[_P, Awaitable[None]]) -> Callable[_P, None]:
    """Runs a test on such a loop. Its fixtures must not be async; no task may be left, as everywhere."""

    async def checked(*args: _P.args, **kwargs: _P.kwargs) -> None:
        await test(*args, **kwargs)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            pytest.fail(f"tasks outlived the test: {sorted(task.get_name() for task in left)}")

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            runner.run(checked(*args, **kwargs))

    return run
