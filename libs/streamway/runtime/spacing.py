"""Keeps the messages of one stream apart while the process is busy, so that what comes meanwhile goes with the next one.

    spacing = Spacing(most_s=0.01)
    while True:
        await wake.wait()
        await spacing.turn()                 # at once while the process has little to do, and after a quiet moment
        await call.write(everything_that_waits())

A message costs about as much for one command as for ten, at both of its ends; so a busy process that waits for others to go
with it has less to do.
"""

from __future__ import annotations

import asyncio
from typing import Final

from streamway.runtime.demand import Demand, of_process

# Up to the first share of demand nothing waits, from the second on messages are `most_s` apart.
_FROM: Final = 0.2
_TO: Final = 0.6
# Loops have timers of a millisecond.
_LEAST_S: Final = 0.001


class Spacing:
    """`most_s` is the most time between two messages that wait for it; 0: nothing ever waits. One for each stream; `turn` has one
    caller at a time.
    """

    __slots__ = ("_demand", "_last", "_most_s")

    def __init__(self, most_s: float, demand: Demand | None = None) -> None:
        self._most_s = most_s
        self._demand = demand or of_process()
        self._last = 0.0

    async def turn(self) -> None:
        """Returns when the next message may go."""
        if not self._most_s:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        busy = min(1.0, max(0.0, (self._demand.share - _FROM) / (_TO - _FROM)))
        wait_s = self._last + self._most_s * busy - now
        if wait_s >= _LEAST_S:
            await asyncio.sleep(wait_s)
            now = loop.time()
        self._last = now
