"""Which tests have the machine to themselves while others run side by side in further processes.

Every test holds the machine for its time, shared with those of other processes; one marked `alone` waits until these are
over, and they wait for it. That wait costs a process or two the rest of a test of another: tests that must be alone come last in
their file, one after the other, and the machine is waited for once.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


class Machine:
    """Two lock files in `folder`, which all processes of one run share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: ExitStack | None = None

    @contextmanager
    def held(self, *, alone: bool, next_alone: bool = False) -> Iterator[None]:
        """Waits without a limit: whoever holds it runs tests, and a test has one. `next_alone`: it is kept for the next of this
        process, if both must be alone."""
        with ExitStack() as held:
            kept, self._kept = self._kept, None
            held.enter_context(kept or self._taken(alone=alone))
            yield
            if alone and next_alone:
                self._kept = held.pop_all()

    @contextmanager
    def _taken(self, *, alone: bool) -> Iterator[None]:
        with (self._folder / "machine.door").open("w") as door, (self._folder / "machine.lock").open("w") as machine:
            # Through the door goes one at a time. Who waits in it for the others to end lets no new one pass.
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(door, fcntl.LOCK_UN)
            yield
