"""The decision: when the memory will be full, if it goes on like this."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 900.0
# A line through less says more of noise than of memory.
_LEAST_S: Final = 60.0


class Trend:
    """A straight line through the readings of the last 15 minutes, by least squares."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        # Seconds, bytes.
        self._readings: deque[tuple[float, float]] = deque()

    def add(self, now: float, used_bytes: int) -> None:
        """Takes a reading, later than all before."""
        self._readings.append((now, float(used_bytes)))
        while self._readings[0][0] < now - self._window_s:
            self._readings.popleft()

    def seconds_to(self, limit_bytes: int) -> float | None:
        """From the last reading until the line is at `limit_bytes`; None where it does not rise, or says nothing yet."""
        readings = self._readings
        if not limit_bytes or not readings or readings[-1][0] - readings[0][0] < _LEAST_S:
            return None
        # From the last reading on, so that the numbers stay small enough for what is subtracted from them.
        last = readings[-1][0]
        count = len(readings)
        mean_s = sum(at - last for at, _ in readings) / count
        mean_bytes = sum(used for _, used in readings) / count
        spread = sum((at - last - mean_s) ** 2 for at, _ in readings)
        bytes_per_s = sum((at - last - mean_s) * (used - mean_bytes) for at, used in readings) / spread
        if bytes_per_s <= 0:
            return None
        now_bytes = mean_bytes - bytes_per_s * mean_s
        return max(0.0, (limit_bytes - now_bytes) / bytes_per_s)
