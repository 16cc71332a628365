"""A ring in shared memory from an engine's process to the adapter's, to be weighed against the unix socket (ADR 62).

    version │ taken │ freed ┆ record 0 │ record 1 │ … ┆ bytes ……………………………………………
       u64      u64     u64    offset u64, length u32, kind u16, stream u16

The writer copies the bytes, then their record, and counts `version` up last: what the reader sees counted is whole. The reader
reads the bytes where they lie and then counts `taken` and `freed` up, by which the writer knows its room. An eventfd wakes the
reader; it counts what came, so that none is missed and several wake it once.

The three words are stored by one instruction each (`memoryview.cast("Q")`; `struct` with "<Q" stores byte by byte, and a reader
would see halves), and x86-64 shows stores in order: other machines would want a barrier, which Python does not have.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from typing import Final

RECORDS: Final = 4096
DATA_BYTES: Final = 4 * 1024 * 1024
CHUNK: Final = 1
END: Final = 2
_RECORD: Final = struct.Struct("=QIHH")
# Words of the header, each on a cache line of its own.
_VERSION, _TAKEN, _FREED = 0, 8, 16
_FIRST_RECORD: Final = 192
_FIRST_BYTE: Final = _FIRST_RECORD + RECORDS * _RECORD.size
_SIZE: Final = _FIRST_BYTE + DATA_BYTES
# How long the writer sleeps at a time while there is no room.
_FULL_S: Final = 0.001


class Ring:
    """One end of it; `memory` and `wake` are descriptors that the other process inherits. One process reads, one writes."""

    def __init__(self, memory: int, wake: int) -> None:
        self.wake = wake
        self._all = memoryview(mmap.mmap(memory, _SIZE))
        self._words = self._all[:_FIRST_RECORD].cast("Q")
        self._data = self._all[_FIRST_BYTE:]
        # The writer's: its threads take turns, and where the next bytes go, counted on without an end.
        self._turn = threading.Lock()
        self._written = 0

    @staticmethod
    def descriptors() -> tuple[int, int]:
        """Of new memory, and of what wakes its reader."""
        memory = os.memfd_create("ring", 0)
        os.ftruncate(memory, _SIZE)
        return memory, os.eventfd(0, os.EFD_NONBLOCK)

    def put(self, kind: int, stream: int, data: bytes) -> None:
        """Adds a record of at most DATA_BYTES; waits while there is no room."""
        words, length = self._words, len(data)
        with self._turn:
            version, at = words[_VERSION], self._written
            if at % DATA_BYTES + length > DATA_BYTES:
                at += DATA_BYTES - at % DATA_BYTES  # it does not go around the end
            while version - words[_TAKEN] >= RECORDS or at + length - words[_FREED] > DATA_BYTES:
                time.sleep(_FULL_S)
            start = at % DATA_BYTES
            self._data[start : start + length] = data
            self._written = at + length
            _RECORD.pack_into(self._all, _place(version), at, length, kind, stream)
            words[_VERSION] = version + 1
        os.eventfd_write(self.wake, 1)

    def take(self) -> Iterator[tuple[int, int, memoryview]]:
        """What there is, as kind, stream and bytes; the bytes are good until the next step."""
        words = self._words
        taken = words[_TAKEN]
        while taken < words[_VERSION]:
            at, length, kind, stream = _RECORD.unpack_from(self._all, _place(taken))
            start = at % DATA_BYTES
            yield kind, stream, self._data[start : start + length]
            taken += 1
            words[_FREED] = at + length
            words[_TAKEN] = taken


def _place(number: int) -> int:
    return _FIRST_RECORD + number % RECORDS * _RECORD.size
