"""Taking connections from a queue that other processes take from too."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

import structlog

from services.edge.io.connection_counts import ConnectionCounts
from streamway.runtime.tasks import TaskScope

_log = structlog.get_logger("edge")

# For so long an edge leaves what waits to one that has fewer connections, and is woken at once unless it is busy or stands.
_YIELD_S: Final = 0.001
# If that one has taken nothing meanwhile, one is taken; twice as many after each further pause in vain, but no more than so many.
_MOST_IN_VAIN: Final = 64
# Without a free descriptor or memory accepting fails at once, again and again.
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_EXHAUSTED_S: Final = 1.0


class Acceptor:
    """Accepts one connection in each turn of the loop, and lets a neighbour with fewer go first.

    A loop's own server empties the queue whenever it is woken, and the process that is awake is woken first: of ten
    connections that came together one of two edges took nine or ten, three times out of five (ADR 46).
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.BaseProtocol],
        scope: TaskScope,
        counts: ConnectionCounts | None,
    ) -> None:
        """`listening` is its own from here, and does not block. Without `counts` nobody else accepts from it."""
        self._listening = listening
        self._protocol = protocol
        self._scope = scope
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._open = 0
        self._in_vain = 1
        self._left_to: int | None = None

    def start(self) -> None:
        """Begins to accept."""
        self._publish()
        self._loop.add_reader(self._listening.fileno(), self._readable)

    def left(self) -> None:
        """One of its connections has ended."""
        self._open -= 1
        if self._listening.fileno() >= 0:
            self._publish()

    def close(self) -> None:
        """Takes no more; what it has taken goes on."""
        if self._pause is not None:
            self._pause.cancel()
        if self._counts is not None:
            self._counts.withdraw()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()

    def _readable(self) -> None:
        least = self._counts.least_of_others() if self._counts is not None else None
        if least is None or least >= self._open:
            self._accept()
            return
        self._in_vain = min(2 * self._in_vain, _MOST_IN_VAIN) if least == self._left_to else 1
        self._left_to = least
        self._wait(_YIELD_S)

    def _accept(self) -> bool:
        """Takes one. False when none is left, because another process was quicker or its client has gone."""
        try:
            client, _ = self._listening.accept()
        except OSError as problem:
            if problem.errno in _EXHAUSTED:
                _log.error("accept_failed", problem=problem.strerror, again_in_s=_EXHAUSTED_S)
                self._wait(_EXHAUSTED_S)
            return False
        client.setblocking(False)
        self._open += 1
        self._publish()
        self._scope.spawn(self._loop.connect_accepted_socket(self._protocol, client), "accepted")
        return True

    def _wait(self, pause_s: float) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._pause = self._loop.call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        self._loop.add_reader(self._listening.fileno(), self._readable)
        if self._counts is not None and self._counts.least_of_others() == self._left_to:
            for _ in range(self._in_vain):
                if not self._accept():
                    break

    def _publish(self) -> None:
        if self._counts is not None:
            self._counts.publish(self._open)
