"""Reads the sockets of many answers in one go, by the clock, instead of each when its next token comes.

    a token comes ──► woken, read, told ──► flushed up to 20 ms later          as each comes
    tokens come   ──► each 20 ms: all that came is read, told, flushed         by the clock

Either way a token waits as long at most, but to be woken for each costs as much as what is done with it. While the process has
little to do every socket is read as data comes, and the first words of an answer always are.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Final, Protocol

from streamway.runtime.demand import Demand, of_process

# So many sockets are read before the loop has its turn.
_PORTION: Final = 128


class Swept(Protocol):
    """A connection that does not read for itself."""

    def read(self, fd: int) -> None:
        """Reads what has come. Raises nothing."""
        ...


class Sweep:
    """The sockets of a process that are read by the clock. `from_share`: how busy it has to be for that, as a share of a core;
    1 is never. Nothing is read by the clock before somebody has said that he ticks (`drive`).
    """

    __slots__ = ("_begun", "_demand", "_epoll", "_from_share", "_sockets", "_waited_for")

    def __init__(self, from_share: float, demand: Demand | None = None) -> None:
        self._from_share = from_share
        self._demand = demand or of_process()
        self._epoll = select.epoll()
        self._sockets: dict[int, Swept] = {}
        self._begun: Callable[[], None] | None = None
        self._waited_for: Callable[[], bool] = lambda: False

    def unless(self, waited_for: Callable[[], bool]) -> None:
        """Nothing more is read by the clock while somebody waits for the end of an answer, since it is seen later so."""
        self._waited_for = waited_for

    def drive(self, begun: Callable[[], None]) -> None:
        """Whoever calls `read` from now on, at each tick, for as long as it is `wanted`; `begun` is called when it becomes so."""
        self._begun = begun

    @property
    def wanted(self) -> bool:
        """There are sockets to read."""
        return bool(self._sockets)

    def add(self, fd: int, reader: Swept) -> bool:
        """Has a socket read by the clock that nobody else reads; False: not while the process is as idle as now, or its answers
        are waited for."""
        if self._begun is None or self._demand.share <= self._from_share or self._waited_for():
            return False
        self._epoll.register(fd, select.EPOLLIN)
        self._sockets[fd] = reader
        if len(self._sockets) == 1:
            self._begun()
        return True

    def discard(self, fd: int, reader: Swept) -> None:
        """Reads it no more; idempotent. Where the socket is closed already its number may be another reader's, which stays."""
        if self._sockets.get(fd) is reader:
            del self._sockets[fd]
            with contextlib.suppress(OSError):  # closed already, and gone from the set by itself
                self._epoll.unregister(fd)

    def read(self) -> bool:
        """Reads what has come, at some of the sockets if it came at many; whether others may have something too."""
        ready = self._epoll.poll(0, _PORTION)
        for fd, _ in ready:
            reader = self._sockets.get(fd)
            if reader is not None:  # what was read before it may have ended it
                reader.read(fd)
        return len(ready) == _PORTION

    def close(self) -> None:
        """Gives its own file back; after the connections."""
        self._begun = None
        self._sockets.clear()
        self._epoll.close()
