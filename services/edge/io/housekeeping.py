"""Gives memory back after many clients have left.

Nothing leaks without it: the connections are freed by their reference counts. But the interpreter and the C library keep
what they held for the next ones, and an edge that had fifty thousand clients in the morning would look like that all day.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

_LOOK_S: Final = 2.0
# Fewer are not worth the milliseconds that it takes.
_LEAST_CLOSED: Final = 1_000


class Housekeeper:
    """Tidies when the number of connections has fallen by half and by a thousand since it was highest.

    `connections` tells how many there are.
    """

    def __init__(self, connections: Callable[[], int]) -> None:
        self._connections = connections
        self._most = 0
        self.tidied = 0
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)  # glibc alone has it

    async def run(self) -> None:
        """Looks every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now = self._connections()
            self._most = max(self._most, now)
            if self._most - now >= max(_LEAST_CLOSED, self._most // 2):
                self.tidy()
                self._most = now

    def tidy(self) -> None:
        """Empties the interpreter's free lists and returns free pages to the system."""
        self.tidied += 1
        gc.collect()
        if self._trim is not None:
            self._trim(0)
