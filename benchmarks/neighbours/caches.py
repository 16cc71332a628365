"""Misses of the processor's caches for a token: by the hardware's counters where a machine lets them be read, else by cachegrind,
which simulates this machine's first and last level."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

_TOTALS: Final = re.compile(r"^==\d+== (I\s+refs|D1\s+misses|LL\s+misses):\s+([\d,]+)", re.MULTILINE)
_LIMIT_S: Final = 1800.0


def hardware(pids: list[int], seconds: float) -> dict[str, int]:
    """Counted for these processes in so many seconds; empty where perf or the counters are missing."""
    if shutil.which("perf") is None:
        return {}
    # fmt: off
    command = [
        "perf", "stat", "-x", ",", "-e", "cache-misses,instructions", "-p", ",".join(map(str, pids)), "--", "sleep", str(seconds),
    ]
    # fmt: on
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {}
    for line in done.stderr.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[0].isdigit():
            found[fields[2]] = int(fields[0])
    return found


def simulated(tenants: int, streams: int) -> dict[str, float]:
    """Of one token of `benchmarks.neighbours.loops`: what all rounds take less what none takes. Empty without valgrind."""
    if shutil.which("valgrind") is None:
        return {}
    _loops(tenants, streams, 0, ())  # or the first of the two compiles what both import
    (none, _), (all_, tokens) = _grind(tenants, streams, 0), _grind(tenants, streams, 4)
    return {name: (all_[name] - none[name]) / tokens for name in all_}


def counts(said: str) -> dict[str, int]:
    """ "I refs", "D1 misses" and "LL misses" of a program, as cachegrind says them at its end."""
    return {" ".join(name.split()): int(number.replace(",", "")) for name, number in _TOTALS.findall(said)}


def _grind(tenants: int, streams: int, rounds: int) -> tuple[dict[str, int], int]:
    with tempfile.TemporaryDirectory() as folder:
        under = ("valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={folder}/out")
        done = _loops(tenants, streams, rounds, under)
    return counts(done.stderr), int(done.stdout.split()[-1])


def _loops(tenants: int, streams: int, rounds: int, under: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # fmt: off
    command = [
        *under, sys.executable, "-m", "benchmarks.neighbours.loops", "--tenants", str(tenants), "--streams", str(streams),
        "--rounds", str(rounds),
    ]
    # fmt: on
    environment = {"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin", "PYTHONPATH": ".", "PYTHONMALLOC": "pymalloc"}
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT_S, env=environment)
