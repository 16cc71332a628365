"""Behaviours that ask for minutes: a few seconds of them in every run, all with `make soak`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator


def lasting(short_s: float, whole_s: float) -> float:
    """Seconds that something is done for."""
    return whole_s if os.environ.get("SOAK") == "1" else short_s


def rounds(least: int, whole_s: float) -> Iterator[int]:
    """Numbers of rounds: so many, and with `make soak` as many as the time allows."""
    until = time.monotonic() + lasting(0.0, whole_s)
    number = 0
    while number < least or time.monotonic() < until:
        yield number
        number += 1
