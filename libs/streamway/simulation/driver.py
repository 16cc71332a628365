"""Runs a simulated engine in real time on an event loop: the one module here that knows asyncio.

One timer for the whole engine, however many calls it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from streamway.simulation.engine import Event, SimulatedEngine
from streamway.simulation.request import SimulationRequest
from streamway.simulation.sequence import SimulatedCall

# With a fixed rate each stream has its own instants: thousands of streams would wake the loop for each token alone.
COALESCE_S: Final = 0.002


class EngineDriver:
    """Steps `engine` when it is due and gives each event to `deliver`, never from inside `submit` or `cancel`; `delivered` is
    called when all events of a step have been.
    """

    def __init__(
        self, engine: SimulatedEngine, deliver: Callable[[Event], None], delivered: Callable[[], None] = lambda: None
    ) -> None:
        self.engine = engine
        self._deliver = deliver
        self._delivered = delivered
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._soon = False
        self._closed = False

    def submit(self, request: SimulationRequest, tag: Any) -> SimulatedCall:
        """Gives the engine a call."""
        call = self.engine.submit(request, tag)
        self._poke()
        return call

    def cancel(self, call: SimulatedCall) -> None:
        """Cancels a call; nothing more is delivered about it."""
        self.engine.cancel(call)
        self._poke()  # its slot may let another one in

    def close(self) -> None:
        """Delivers nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _poke(self) -> None:
        if self._soon or self._closed:
            return
        self._soon = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._soon = False
        self._timer = None
        now = self._loop.time()
        events, wake = self.engine.step(now)
        for event in events:
            call = event.call
            # Delivering one event may cancel the call of a later one.
            if call.tag is None:
                continue
            try:
                self._deliver(event)
            except Exception as problem:  # noqa: BLE001 - one reader's fault must not stop the engine of all
                self._loop.call_exception_handler({"message": "a reader of the engine failed", "exception": problem})
        self._delivered()
        if self._closed or self._soon or wake is None:
            return
        self._timer = self._loop.call_at(max(wake, now + COALESCE_S), self._step)
