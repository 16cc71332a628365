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
# What an engine does that was kept from its work for longer is late for good: it gets slower, as a real one does, where it would
# make a second's tokens in one step, which takes another second.
CATCH_UP_S: Final = 0.05


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
        # The engine's clock is so much behind the loop's.
        self._lost_s = 0.0
        self._due = self._loop.time()

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
        if self._timer is None:
            self._due = self._loop.time()
        else:
            self._due = min(self._due, self._loop.time())
            self._timer.cancel()
        self._timer = self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._soon = False
        self._timer = None
        now = self._loop.time()
        self._lost_s += max(0.0, now - self._due - CATCH_UP_S)
        events, wake = self.engine.step(now - self._lost_s)
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
        self._due = max(wake + self._lost_s, now + COALESCE_S)
        self._timer = self._loop.call_at(self._due, self._step)
