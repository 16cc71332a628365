"""Which tests have the machine to themselves while others run side by side in further processes.

Every test holds the machine for its time, shared with those of other processes; one marked `alone` waits until these are
over, and they wait for it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Machine:
    """Two lock files in `folder`, which all processes of one run share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Waits without a limit: whoever holds it runs a test, and a test has one."""
        with (self._folder / "machine.door").open("w") as door, (self._folder / "machine.lock").open("w") as machine:
            # Through the door goes one at a time. Who waits in it for the others to end lets no new one pass.
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(door, fcntl.LOCK_UN)
            yield
