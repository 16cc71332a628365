"""The ring of `benchmarks.engine_bridge`, between two processes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from benchmarks.shared_ring import CHUNK, DATA_BYTES, END, RECORDS, Ring

ROOT = Path(__file__).resolve().parents[3]
COUNT = 3 * RECORDS
# So many sizes that the end of the ring comes at many of them.
WRITER = f"""
import sys
from benchmarks.shared_ring import CHUNK, END, Ring
ring = Ring(int(sys.argv[1]), int(sys.argv[2]))
for number in range({COUNT}):
    ring.put(CHUNK, number % 7, number.to_bytes(4, "little") * (number % 601))
ring.put(END, 0, b"")
"""


def test_every_record_comes_whole_and_in_order_around_the_end_of_the_ring() -> None:
    memory, wake = Ring.descriptors()
    ring = Ring(memory, wake)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(memory), str(wake)], cwd=ROOT, pass_fds=(memory, wake))
    number = size = 0
    ended = False
    while not ended:
        assert select.select([wake], [], [], 30)[0], f"nobody woke the reader after {number} records"
        os.eventfd_read(wake)
        for kind, stream, data in ring.take():
            if kind == END:
                ended = True
                continue
            assert (kind, stream) == (CHUNK, number % 7)
            assert data == number.to_bytes(4, "little") * (number % 601)
            number += 1
            size += len(data)
    assert number == COUNT
    assert size > 3 * DATA_BYTES
    assert writer.wait(10) == 0
    os.close(memory)
    os.close(wake)
