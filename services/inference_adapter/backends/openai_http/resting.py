"""An engine that gives its memory back while nobody wants anything of it, and takes it again for the next call.

    awake ──no work for `idle_s`──► POST sleep ──► asleep ──a call──► POST wake ──► awake, and the call is sent

Only for engines with such calls (`SleepCalls` in their profile) and only where it was asked for: it is the whole engine that
sleeps, also for others that use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from services.inference_adapter.backends.openai_http.discovery import Get
from services.inference_adapter.backends.openai_http.profiles import SleepCalls
from streamway.errors import EngineFailed

_log = structlog.get_logger("adapter")
# To put weights aside takes as long as copying them.
_SLEEP_S: Final = 120.0

Post = Callable[[str, bytes, float], Awaitable[tuple[int, bytes]]]


class _State(msgspec.Struct):
    is_sleeping: bool = False


class Rest:
    """One engine's. `wake_s`: how long waking may take. `clock` gives seconds."""

    def __init__(
        self,
        worker: str,
        get: Get,
        post: Post,
        calls: SleepCalls,
        idle_s: float,
        wake_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._worker = worker
        self._get, self._post = get, post
        self._calls = calls
        self._idle_s, self._wake_s = idle_s, wake_s
        self._clock = clock
        self._worked_at = clock()
        self._changing = asyncio.Lock()
        self._can = False
        self.asleep = False

    @property
    def awake(self) -> bool:
        """A call may be sent at once."""
        return not self.asleep and not self._changing.locked()

    async def start(self) -> None:
        """Looks whether it can sleep, and wakes it where it does: an earlier worker may have left it so. Raises EngineFailed."""
        status, body = await self._get(self._calls.state)
        try:
            state = msgspec.json.decode(body, type=_State) if status == 200 else None
        except msgspec.DecodeError:
            state = None
        if state is None:
            _log.warning("engine_cannot_sleep", what_to_do=self._calls.needs)
            return
        self._can = True
        self.asleep = state.is_sleeping
        await self.wake()

    def worked(self) -> None:
        """A call has just ended."""
        self._worked_at = self._clock()

    @property
    def due(self) -> bool:
        """It is time to sleep, if nobody works."""
        return self._can and self.awake and self._clock() - self._worked_at >= self._idle_s

    async def sleep(self, busy: Callable[[], bool]) -> None:
        """Puts it to sleep, unless a call has come by now. Calls that come meanwhile wake it again."""
        async with self._changing:
            if busy():
                return
            try:
                status, _ = await self._post(self._calls.sleep, b"", _SLEEP_S)
            except EngineFailed as problem:
                # Nobody knows whether it sleeps. To wake one that does not changes nothing.
                _log.warning("engine_may_be_asleep", problem=problem.message)
                self.asleep = True
                return
            if status != 200:
                self._can = False
                _log.warning("engine_cannot_sleep", status=status, what_to_do=self._calls.needs)
                return
            self.asleep = True
            _log.info("engine_asleep", idle_s=round(self._clock() - self._worked_at))

    async def wake(self) -> None:
        """Returns when it is awake. Raises EngineFailed."""
        async with self._changing:
            if not self.asleep:
                return
            status, _ = await self._post(self._calls.wake, b"", self._wake_s)
            if status != 200:
                raise EngineFailed(self._worker, f"it was asked to wake up and answered {status}")
            self.asleep = False
            self.worked()
            _log.info("engine_awake")
