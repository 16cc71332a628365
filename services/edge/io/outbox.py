"""What waits to be written to one client, and the rule for clients that read too slowly.

Readers put bytes; at the end of a batch everything that was put for a client leaves in one `transport.write`. What the
kernel does not take waits in the transport's buffer, and that is bounded. Over `slow_bytes`:

    generations that have a channel   paused: what comes is not kept here, but read from the channel later
        a quarter of it is left       they go on
        nothing taken for `stuck_s`   closed; the client can resume
    others                            `slow_s` to get below, or closed; over `buffer_bytes` at once

A tenant whose clients have more waiting than its soft bound (`core/backlog.py`) has those paused that are behind at all.

A client that has half-closed its connection is gone: what waits for it is dropped. Otherwise one that also reads nothing would
hold connection and generation for as long as its kernel answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from services.edge.core.backlog import Backlog
from services.edge.io.metrics import EdgeMetrics
from streamway.errors import SlowConsumer

_LOOK_S: Final = 0.05


class Pausing(Protocol):
    """What is written to one client, and can be stopped and picked up again later."""

    @property
    def tenant(self) -> str:
        """Whose client it is."""
        ...

    def pause(self) -> bool:
        """Writes nothing more until `go_on`. False: some of it has to be written as it comes."""
        ...

    def go_on(self) -> None:
        """Writes what was missed, and goes on."""
        ...


class Flusher:
    """Writes every outbox that has something, once per batch. One for the process.

    `bound_of`: bytes that may wait for all clients of a tenant; None: any.
    """

    def __init__(
        self,
        metrics: EdgeMetrics,
        *,
        slow_bytes: int,
        slow_s: float,
        buffer_bytes: int,
        stuck_s: float = 10.0,
        bound_of: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.metrics = metrics
        # Bytes handed to the kernel or the transport's buffer, by surface.
        self.sent = metrics.bytes
        # A stream's part of the memory for streams: it changes with how many there are.
        self.slow_bytes = slow_bytes
        self.buffer_bytes = buffer_bytes
        self._slow_s = slow_s
        self._stuck_s = stuck_s
        self._dirty: list[Outbox] = []
        self._scheduled = False
        # Outboxes that are over `slow_bytes`: until when they have time. Paused ones: with what waited when that was set.
        self._slow: dict[Outbox, float] = {}
        self._paused: dict[Outbox, tuple[int, float]] = {}
        self._looking = False
        self._backlog: Backlog[Outbox] = Backlog(bound_of, lambda outbox: outbox.waiting)

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

    def behind(self, outbox: Outbox, waiting: int) -> None:
        """The client of this outbox has not taken everything: where its tenant has too much waiting, it gets no more of it."""
        if outbox.tenant and self._backlog.note(outbox, outbox.tenant, waiting):
            for other in self._backlog.clients(outbox.tenant):
                if other.hold():
                    self.metrics.tenant_pauses += 1

    def watch(self, outbox: Outbox) -> None:
        """This outbox is over `slow_bytes`, and cannot be paused: it has `slow_s` to get below."""
        self._slow.setdefault(outbox, self._loop.time() + self._slow_s)
        self._look_soon()

    def watch_paused(self, outbox: Outbox) -> None:
        """This outbox is paused until it has drained."""
        self._paused[outbox] = (outbox.waiting, self._loop.time() + self._stuck_s)
        self._look_soon()

    def forget(self, outbox: Outbox) -> None:
        """The connection is gone."""
        self._slow.pop(outbox, None)
        self._paused.pop(outbox, None)
        self._backlog.forget(outbox, outbox.tenant)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        for outbox in [outbox for outbox in (*self._slow, *self._paused) if outbox.half_closed]:
            outbox.cut()
        for outbox, until in list(self._slow.items()):
            if outbox.waiting <= self.slow_bytes:
                del self._slow[outbox]
            elif now >= until:
                del self._slow[outbox]
                outbox.overflow()
        for outbox, (waited, until) in list(self._paused.items()):
            waiting = outbox.waiting
            if waiting <= self.slow_bytes // 4 and not (waiting and self._backlog.over(outbox.tenant)):
                del self._paused[outbox]
                outbox.drained()
            elif waiting < waited:
                self._paused[outbox] = (waiting, now + self._stuck_s)
            elif now >= until:
                del self._paused[outbox]
                outbox.overflow()
        self._looking = False
        if self._slow or self._paused:
            self._look_soon()


class Outbox:
    """The way to one client. `overflowed` is called once, when it reads too slowly for what cannot wait; it ends the
    connection. `pausing` is what can.

    `surface` is the label of its metrics.
    """

    __slots__ = (
        "_dirty",
        "_flusher",
        "_over",
        "_overflowed",
        "_parts",
        "_paused",
        "_pausing",
        "_size",
        "_transport",
        "closed",
        "surface",
        "tenant",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        flusher: Flusher,
        surface: str,
        overflowed: Callable[[SlowConsumer], None],
        pausing: Pausing | None = None,
    ) -> None:
        self._transport = transport
        self._flusher = flusher
        self._overflowed = overflowed
        self._pausing = pausing
        self._parts: list[bytes] = []
        self._size = 0
        self._dirty = False
        self._over = False
        self._paused = False
        self.closed = False
        self.surface = surface
        # Empty: it has no bound but its own.
        self.tenant = pausing.tenant if pausing is not None else ""

    @property
    def waiting(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return 0 if self.closed else self._transport.get_write_buffer_size()

    @property
    def held(self) -> int:
        """The same with what has not been written yet."""
        return self._size + self.waiting

    @property
    def paused(self) -> bool:
        """The client has to read what waits before it gets more."""
        return self._paused

    @property
    def half_closed(self) -> bool:
        """The client has closed its side, or the connection is broken."""
        return not self.closed and self._transport.is_closing()

    def put(self, data: bytes) -> None:
        """Adds bytes to the next write. Dropped when the connection is closed."""
        self._parts.append(data)
        self._size += len(data)
        if not self._dirty:
            self._dirty = True
            self._flusher.mark(self)
        if self._size > self._flusher.slow_bytes:
            # One batch may bring more than a slow client may have waiting.
            self.flush()

    def flush(self) -> None:
        """Writes what was put."""
        self._dirty = False
        parts = self._parts
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        self._size = 0
        if self.closed:
            return
        transport = self._transport
        if transport.is_closing():
            # Half-closed.
            self.cut()
            return
        transport.write(self.framed(data))
        flusher = self._flusher
        flusher.sent[self.surface] += len(data)
        waiting = transport.get_write_buffer_size()
        if waiting:
            flusher.behind(self, waiting)
            if waiting > flusher.slow_bytes:
                self._full()

    def framed(self, data: bytes) -> bytes:
        """The bytes as the surface's transfer coding wants them."""
        return data

    def hold(self) -> bool:
        """The client gets nothing more of what can wait before it has read what is there. False: it is held already."""
        if self.closed or self._paused or self._pausing is None:
            return False
        self._pause(self._pausing)
        return True

    def drained(self) -> None:
        """The client has read nearly all of what waited."""
        if self._paused and not self.closed and self._pausing is not None:
            self._paused = False
            self._pausing.go_on()

    def overflow(self) -> None:
        """Ends the connection of a client that reads too slowly."""
        if self.closed or self._over:
            return
        # What ends the connection writes a last frame, which is over the limit again.
        self._over = True
        error = SlowConsumer(self._transport.get_write_buffer_size(), self._flusher.slow_bytes)
        self._flusher.metrics.slow_consumers += 1
        self._overflowed(error)

    def cut(self) -> None:
        """Ends the connection of a client that is gone, with what it has not read."""
        self.closed = True
        self._flusher.forget(self)
        self._transport.abort()

    def close(self) -> None:
        """Nothing is written any more; what was put and not flushed is dropped."""
        self.closed = True
        self._parts = []
        # The connection holds its outbox: without this the two would wait for the cycle collector.
        self._overflowed = _nobody
        self._pausing = None
        self._flusher.forget(self)

    def _full(self) -> None:
        if self._pausing is not None and self._pause(self._pausing):
            return
        if self._transport.get_write_buffer_size() > self._flusher.buffer_bytes:
            self.overflow()
        else:
            self._flusher.watch(self)

    def _pause(self, pausing: Pausing) -> bool:
        """True: nothing more comes. Where some of it has to come, the rest goes on when the client has caught up all the same."""
        able = pausing.pause()
        if not self._paused:
            self._paused = True
            self._flusher.watch_paused(self)
        return able


def _nobody(_: SlowConsumer) -> None:
    """Stands in for the owner of a closed outbox."""


class ChunkedOutbox(Outbox):
    """An outbox whose writes are chunks of an HTTP/1.1 body."""

    __slots__ = ()

    def framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data)
