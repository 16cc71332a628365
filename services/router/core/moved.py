"""Who is to be judged by the end of a generation that its worker has left to others."""

from __future__ import annotations

from collections.abc import Callable


def holder(left: str, recorded: str, writer: str, *, ended: bool, there: Callable[[str], bool]) -> str:
    """The worker that has it after `left`; "" where that is nobody, or not known yet.

    `recorded`: whom its record names, which is changed when the task is moved. `writer`: who made the newest engine call in its
    channel. Either may be ahead. `ended`: the channel has its end; then only who wrote that made it, which may have been a router
    or the cache. `there` tells workers that can be reached from other names.
    """
    for worker in (writer,) if ended else (recorded, writer):
        if worker and worker != left and there(worker):
            return worker
    return ""
