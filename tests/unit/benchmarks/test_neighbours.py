"""Cache misses: the program that is counted, and what is read of cachegrind."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from benchmarks.neighbours import caches
from benchmarks.neighbours.loops import streams


async def test_each_round_runs_every_stream_once_through_all_loops() -> None:
    made = streams(3)
    assert [len(turn) for turn in made] == [9, 9, 9, 9]
    for turn in made:
        for each in turn:
            each()


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_what_cachegrind_says_is_read() -> None:
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null", "/bin/true"]
    counts = caches.counts(subprocess.run(command, capture_output=True, text=True, check=True).stderr)
    assert counts["I refs"] > counts["D1 misses"] > 0
    assert counts["LL misses"] > 0
