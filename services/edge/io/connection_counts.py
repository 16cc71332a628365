"""How many connections each edge behind one listening socket has open."""

from __future__ import annotations

import mmap
import os
from typing import Final

from streamway.runtime.process import StartError
from streamway.runtime.processes import lives

# A slot is the process, 0 for none that accepts, and its connections: two unsigned words of four bytes.
_WORDS: Final = 2
_SLOT_BYTES: Final = 4 * _WORDS


class ConnectionCounts:
    """A small file that all of them map; each writes its own slot. A word is written at once, so nobody reads half of one."""

    def __init__(self, descriptor: int, slot: int) -> None:
        """Raises StartError when there is no such file, or it has no such slot."""
        try:
            size = os.fstat(descriptor).st_size
            if not 0 <= slot < size // _SLOT_BYTES:
                raise StartError(f"descriptor {descriptor} has no slot {slot}; unset STREAMWAY_EDGE_COUNTS_FD")
            self._words = memoryview(mmap.mmap(descriptor, size)).cast("I")
        except OSError as problem:
            raise StartError(
                f"descriptor {descriptor} is no file ({problem.strerror}); unset STREAMWAY_EDGE_COUNTS_FD"
            ) from None
        self._mine = slot * _WORDS

    def publish(self, connections: int) -> None:
        """This process accepts, and has so many."""
        self._words[self._mine + 1] = connections
        self._words[self._mine] = os.getpid()

    def withdraw(self) -> None:
        """This process accepts no more."""
        self._words[self._mine] = 0

    def least_of_others(self) -> int | None:
        """The fewest that another living process has; None when there is none."""
        least: int | None = None
        for at in range(0, len(self._words), _WORDS):
            process, count = self._words[at], self._words[at + 1]
            if at != self._mine and process and (least is None or count < least) and lives(process):
                least = count
        return least
