"""How long tokens wait for others before they are flushed together: longer while the process cannot keep up.

    lateness of the flush timer   0 … 2 ms   5 ms    10 ms   25 ms and more
    a token waits at most           20 ms    32 ms   52 ms   100 ms               with the defaults

A flush costs as much for one token as for several of the same generation, and everything behind it does too: the append, the
event, the client's write. A loop that is late has more to do than it can, and would be later with each tick; with longer waits
it has less to do, which is seen at the next tick. An idle process has no lateness and so adds no wait.
"""

from __future__ import annotations

from typing import Final

# What the timer of an idle loop may be late, on a machine that others use too.
_SLACK_S: Final = 0.002
# Seconds of waiting for a second of lateness.
_GAIN: Final = 4.0
# Of a new lateness in the smoothed one: three ticks make half of the way.
_WEIGHT: Final = 0.2


class FlushWindow:
    """`seconds` is what a token waits at most, between `least_s` and `most_s`."""

    __slots__ = ("_late_s", "_least_s", "_most_s", "seconds")

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = max(least_s, most_s)
        self._late_s = 0.0
        self.seconds = least_s

    def ticked(self, late_s: float) -> None:
        """The timer ran this much after its time."""
        self._late_s += (max(0.0, late_s) - self._late_s) * _WEIGHT
        waited = self._least_s + _GAIN * max(0.0, self._late_s - _SLACK_S)
        self.seconds = min(self._most_s, waited)
