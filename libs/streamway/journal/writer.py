"""All channels that a process writes, on its one link."""

from __future__ import annotations

import asyncio
from typing import Final

from streamway.journal.begun import Begun
from streamway.journal.channel import Channel
from streamway.journal.writing import Writing, WritingListener
from streamway.runtime.clock import Clock
from streamway.valkey.link import Link
from streamway.valkey.session import Session

# How often every channel is told that time passes, for the renewal of its time to live.
_TICK_S: Final = 15.0


class JournalWriter:
    """Opens channels for engine calls that have begun, and tells them what becomes of the link.

    `live_ttl_ms` is how long a channel outlives its last renewal while it is written, `finished_ttl_ms` its end.
    """

    def __init__(self, link: Link, clock: Clock, *, live_ttl_ms: int = 600_000, finished_ttl_ms: int = 300_000) -> None:
        self._link = link
        self._clock = clock
        self._live_ttl_ms = live_ttl_ms
        self._finished_ttl_ms = finished_ttl_ms
        self._writings: set[Writing] = set()
        link.listen(self)

    def __len__(self) -> int:
        return len(self._writings)

    def open(self, begun: Begun, session: Session, listener: WritingListener) -> Writing:
        """A channel for one engine call. `session` is the one that `begin_call` gave; if it is gone, doubt comes first.

        `close` it when it has finished or stopped.
        """
        channel = Channel(
            begun, self._clock.monotonic(), live_ttl_ms=self._live_ttl_ms, finished_ttl_ms=self._finished_ttl_ms
        )
        loop = asyncio.get_running_loop()
        writing = Writing(channel, session, listener, self._clock.monotonic, loop.call_later)
        self._writings.add(writing)
        current = self._link.current
        if current is not None and current is not session:
            if session.alive:
                writing.lost()
            writing.connected(current)
        return writing

    def close(self, writing: Writing) -> None:
        """Forgets a channel."""
        self._writings.discard(writing)

    async def run(self) -> None:
        """Tells the channels that time passes, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.silent()

    # --- LinkListener

    def connected(self, session: Session) -> None:
        for writing in list(self._writings):
            writing.connected(session)

    def lost(self) -> None:
        for writing in list(self._writings):
            writing.lost()

    def silent(self) -> None:
        for writing in list(self._writings):
            writing.tick()
