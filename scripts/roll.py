"""Replaces the containers of a running mesh one at a time by new ones: `make roll`, or `make up` for whoever may wait.

Of caches, workers and routers a new container is started and healthy before an old one is asked to stop, which drains: what it
runs ends or moves. An edge holds a published port that no second one can have, so it is stopped first: its clients come back
with their cursors. Valkey stays.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

OVERLAPPING: Final = ("cache", "adapter", "router")
_HEALTHY_S: Final = 300
# Longer than the longest stop_grace_period.
_STOP_S: Final = 120


def roll(compose: Sequence[str], docker: Sequence[str] = ("docker",)) -> None:
    """Replaces every container of ours. `compose` begins with the command and has its files and options.

    Raises CalledProcessError or TimeoutExpired where a new container does not become healthy; the old ones run on then.
    """
    for service in OVERLAPPING:
        old = _containers(compose, service)
        for number, container in enumerate(old, 1):
            began = time.monotonic()
            _up(compose, service, "--no-recreate", "--scale", f"{service}={len(old) + 1}")
            _run([*docker, "stop", container])
            _run([*docker, "rm", container])
            print(f"  {service} {number} of {len(old)} replaced in {time.monotonic() - began:.1f} s", flush=True)
    if edges := _containers(compose, "edge"):
        began = time.monotonic()
        _up(compose, "edge", "--force-recreate", "--scale", f"edge={len(edges)}")
        print(f"  edge replaced in {time.monotonic() - began:.1f} s", flush=True)


def _up(compose: Sequence[str], service: str, *options: str) -> None:
    wait = ("--wait", "--wait-timeout", str(_HEALTHY_S))
    _run([*compose, "up", "--detach", "--no-deps", "--no-build", *wait, *options, service], _HEALTHY_S + _STOP_S)


def _containers(compose: Sequence[str], service: str) -> list[str]:
    return _run([*compose, "ps", "--quiet", service]).split()


def _run(command: Sequence[str], within_s: float = _STOP_S) -> str:
    """What it prints. What it says of its progress is shown only when it fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=within_s).stdout
    except subprocess.CalledProcessError as problem:
        sys.stderr.write(problem.stderr)
        raise


if __name__ == "__main__":
    roll(sys.argv[1:] or ["docker", "compose", "--env-file", ".run/compose.env"])
