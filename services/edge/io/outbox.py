"""What waits to be written to one client, and the rule for clients that read too slowly.

Readers put bytes; at the end of a batch everything that was put for a client leaves in one `transport.write`. What the
kernel does not take waits in the transport's buffer, and that is bounded:

    over `buffer_bytes`               closed at once
    over `slow_bytes` for `slow_s`    closed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from services.edge.io.metrics import EdgeMetrics
from streamway.errors import SlowConsumer

_LOOK_S: Final = 0.25


class Flusher:
    """Writes every outbox that has something, once per batch. One for the process."""

    def __init__(self, metrics: EdgeMetrics, *, slow_bytes: int, slow_s: float, buffer_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.metrics = metrics
        self.slow_bytes = slow_bytes
        self.buffer_bytes = buffer_bytes
        self._slow_s = slow_s
        self._dirty: list[Outbox] = []
        self._scheduled = False
        self._slow: dict[Outbox, float] = {}
        self._looking = False

    def mark(self, outbox: Outbox) -> None:
        """This outbox has something. It is written when the batch ends, at the latest on the loop's next turn."""
        self._dirty.append(outbox)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def flush(self) -> None:
        """Writes all that waits: the hook at the end of a batch."""
        dirty, self._dirty = self._dirty, []
        for outbox in dirty:
            outbox.flush()

    def watch(self, outbox: Outbox) -> None:
        """This outbox is over `slow_bytes`: it has `slow_s` to get below."""
        self._slow.setdefault(outbox, self._loop.time() + self._slow_s)
        if not self._looking:
            self._looking = True
            self._loop.call_later(_LOOK_S, self._look)

    def forget(self, outbox: Outbox) -> None:
        """The connection is gone."""
        self._slow.pop(outbox, None)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()

    def _look(self) -> None:
        now = self._loop.time()
        for outbox, until in list(self._slow.items()):
            if outbox.waiting <= self.slow_bytes:
                del self._slow[outbox]
            elif now >= until:
                del self._slow[outbox]
                outbox.overflow()
        self._looking = bool(self._slow)
        if self._looking:
            self._loop.call_later(_LOOK_S, self._look)


class Outbox:
    """The way to one client. `overflowed` is called once, when it reads too slowly; it ends the connection.

    `surface` is the label of its metrics.
    """

    __slots__ = ("_dirty", "_flusher", "_over", "_overflowed", "_parts", "_transport", "closed", "surface")

    def __init__(
        self,
        transport: asyncio.Transport,
        flusher: Flusher,
        surface: str,
        overflowed: Callable[[SlowConsumer], None],
    ) -> None:
        self._transport = transport
        self._flusher = flusher
        self._overflowed = overflowed
        self._parts: list[bytes] = []
        self._dirty = False
        self._over = False
        self.closed = False
        self.surface = surface

    @property
    def waiting(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return 0 if self.closed else self._transport.get_write_buffer_size()

    def put(self, data: bytes) -> None:
        """Adds bytes to the next write. Dropped when the connection is closed."""
        self._parts.append(data)
        if not self._dirty:
            self._dirty = True
            self._flusher.mark(self)

    def flush(self) -> None:
        """Writes what was put."""
        self._dirty = False
        parts = self._parts
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        transport = self._transport
        if self.closed or transport.is_closing():
            self.closed = True
            return
        transport.write(self.framed(data))
        flusher = self._flusher
        flusher.metrics.sent(self.surface, len(data))
        waiting = transport.get_write_buffer_size()
        if waiting > flusher.slow_bytes:
            if waiting > flusher.buffer_bytes:
                self.overflow()
            else:
                flusher.watch(self)

    def framed(self, data: bytes) -> bytes:
        """The bytes as the surface's transfer coding wants them."""
        return data

    def overflow(self) -> None:
        """Ends the connection of a client that reads too slowly."""
        if self.closed or self._over:
            return
        # What ends the connection writes a last frame, which is over the limit again.
        self._over = True
        error = SlowConsumer(self._transport.get_write_buffer_size(), self._flusher.slow_bytes)
        self._flusher.metrics.slow_consumers += 1
        self._overflowed(error)

    def close(self) -> None:
        """Nothing is written any more; what was put and not flushed is dropped."""
        self.closed = True
        self._parts = []
        # The connection holds its outbox: without this the two would wait for the cycle collector.
        self._overflowed = _nobody
        self._flusher.forget(self)


def _nobody(_: SlowConsumer) -> None:
    """Stands in for the owner of a closed outbox."""


class ChunkedOutbox(Outbox):
    """An outbox whose writes are chunks of an HTTP/1.1 body."""

    __slots__ = ()

    def framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data)
