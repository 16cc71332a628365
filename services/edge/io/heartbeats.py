"""Heartbeats for all connections from one timer, spread over the period so that no moment has them all."""

from __future__ import annotations

import asyncio
from typing import Final

from services.edge.interfaces import Beating

_SLOTS: Final = 60


class HeartbeatWheel:
    """Turns once in a little less than `period_s`; each connection sits in one of 60 slots.

    A connection is put into the slot that was just passed: its first beat comes after a whole turn.
    """

    def __init__(self, period_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._step_s = period_s * 0.95 / _SLOTS
        self._slots: list[set[Beating]] = [set() for _ in range(_SLOTS)]
        self._place: dict[Beating, int] = {}
        self._now = 0
        self._due = self._loop.time() + self._step_s
        self._timer = self._loop.call_at(self._due, self._tick)

    def __len__(self) -> int:
        return len(self._place)

    def add(self, connection: Beating) -> None:
        """From now on `connection.beat` is called once a turn."""
        self._place[connection] = self._now
        self._slots[self._now].add(connection)

    def remove(self, connection: Beating) -> None:
        """No more beats; one that is not there is ignored."""
        place = self._place.pop(connection, None)
        if place is not None:
            self._slots[place].discard(connection)

    def close(self) -> None:
        """Stops the timer."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._now = (self._now + 1) % _SLOTS
        for connection in list(self._slots[self._now]):
            connection.beat()
        # A loop that was late makes up for it, so that the period holds.
        self._due = max(self._due + self._step_s, self._loop.time())
        self._timer = self._loop.call_at(self._due, self._tick)
