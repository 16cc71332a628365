"""The end of a worker that is asked to stop: it lets work end, and gives away what takes longer."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.io.fanout.directory import Directory
from services.inference_adapter.io.lane_loop import LaneLoop
from services.inference_adapter.io.worker import Worker
from streamway.runtime.clock import Clock

_log = structlog.get_logger("adapter")

# How long readers get for what is left in their streams when everything has ended.
_LAST_WORDS_S: Final = 2.0


class Drain:
    """Two steps. What has no response channel must end here, the rest may go on elsewhere."""

    def __init__(self, worker: Worker, lane_loop: LaneLoop, directory: Directory, clock: Clock) -> None:
        self._worker = worker
        self._lane_loop = lane_loop
        self._directory = directory
        self._clock = clock

    async def wait(self, notice_s: float, grace_s: float) -> None:
        """Until everything that was accepted has ended, at most `grace_s`, and at least `notice_s`: so long, routers that have
        not noticed may still send."""
        begun = self._clock.monotonic()
        while (waited_s := self._clock.monotonic() - begun) < grace_s:
            if self._worker.idle and waited_s >= notice_s and await self._lane_loop.emptied():
                break
            await asyncio.sleep(0.05)

    async def give_up(self) -> None:
        """Ends what is left or gives it to other workers, and lets its readers have their last words."""
        end = self._clock.monotonic() + _LAST_WORDS_S
        self._worker.end_all()
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._lane_loop.move_unread()
        except (RedisError, OSError) as problem:
            _log.warning("tasks_not_moved", problem=type(problem).__name__)
        # The writers of the streams are not made to pay for this one wait at the end.
        while self._clock.monotonic() < end and not (self._worker.idle and self._directory.idle):
            self._worker.end_all()
            await asyncio.sleep(0.02)
