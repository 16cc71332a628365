"""The decision: how much of its bound a cache gives up while memory is short."""

from __future__ import annotations

from typing import Final

# At each look, every five seconds: a tenth less while memory is short, a tenth more while there is room.
_STEP: Final = 0.9
# What it never gives up: without anything a cache only costs.
_LEAST: Final = 0.25


class Yielding:
    """`bytes` is the bound now, of `full_bytes` where there is room."""

    def __init__(self, full_bytes: int) -> None:
        self._full_bytes = full_bytes
        self._share = 1.0

    @property
    def bytes(self) -> int:
        """The bound as of the last look."""
        return int(self._full_bytes * self._share)

    def look(self, pressed: bool) -> int:
        """The bound from now on."""
        self._share = max(_LEAST, self._share * _STEP) if pressed else min(1.0, self._share / _STEP)
        return self.bytes
