"""One raw connection per process: commands packed by hiredis, all of a tick sent in one write, replies routed in order.

redis-py's pipeline costs about ten times the CPU for each command (`benchmarks/journal_append.py`), and it hides broken
connections, which the journal must see (`session.py`). Blocking commands must not run here.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import hiredis
import structlog
from redis.asyncio.connection import parse_url

from streamway.runtime.clock import Clock
from streamway.valkey.packing import pack
from streamway.valkey.session import Argument, LinkLost, Reply, Session, StoreRefused

_log = structlog.get_logger("valkey")
_FIRST_BACKOFF_S: Final = 0.02
_MOST_BACKOFF_S: Final = 1.0


class LinkListener(Protocol):
    """Who must know about the connection. Called on the event loop; must not raise."""

    def connected(self, session: Session) -> None:
        """There is a new connection."""
        ...

    def lost(self) -> None:
        """It broke."""
        ...

    def silent(self) -> None:
        """Nothing came back for 50 ms though something was asked; again each 50 ms while that lasts, or nothing is there."""
        ...


class LinkSession(asyncio.Protocol):
    """One connection. `Session` is the port it implements."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._waiting: deque[Callable[[Reply], None]] = deque()
        self._calls: set[asyncio.Future[Reply]] = set()
        self.alive = True
        self.closed: asyncio.Future[None] = loop.create_future()
        # When the store last said something, or was first asked after it had answered everything.
        self.heard = loop.time()

    @property
    def owed(self) -> int:
        """Replies that have not come."""
        return len(self._waiting)

    def send(self, command: Sequence[Argument], on_reply: Callable[[Reply], None]) -> None:
        if self.alive:
            self.send_packed(pack(command if type(command) is tuple else tuple(command)), on_reply)

    def send_packed(self, packed: bytes, on_reply: Callable[[Reply], None]) -> None:
        if not self.alive:
            return
        if not self._unsent:
            self._begin_write()
        self._unsent.append(packed)
        self._waiting.append(on_reply)

    def send_group(self, packed: bytes, on_replies: Sequence[Callable[[Reply], None]]) -> None:
        if not self.alive:
            return
        if not self._unsent:
            self._begin_write()
        self._unsent.append(packed)
        self._waiting.extend(on_replies)

    def flush(self) -> None:
        """Writes everything sent since the last time, as one. Happens by itself at the end of the tick."""
        if self._unsent and self._transport is not None:
            unsent, self._unsent = self._unsent, []
            self._transport.write(b"".join(unsent))

    async def call(self, *command: Argument) -> Reply:
        return (await self.call_group(pack(command), 1))[0]

    async def call_group(self, packed: bytes, count: int) -> list[Reply]:
        if not self.alive:
            raise LinkLost
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._calls.add(future)
        replies: list[Reply] = []
        self.send_group(
            packed,
            [*[replies.append] * (count - 1), lambda reply: None if future.done() else future.set_result(reply)],
        )
        try:
            replies.append(await future)
        finally:
            self._calls.discard(future)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise StoreRefused(str(reply))
        return replies

    def _begin_write(self) -> None:
        """The first of a tick."""
        if not self._waiting:
            self.heard = self._loop.time()
            self._link.stir()
        self._loop.call_soon(self.flush)

    def abort(self) -> None:
        """Breaks the connection."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: uvloop's transports do not say that they are ones.
        self._transport = cast("asyncio.Transport", transport)
        # Back-pressure is the callers': what waits is bounded by what their generations hold anyway.
        self._transport.set_write_buffer_limits(high=1 << 30)

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        while waiting and (reply := reader.gets()) is not False:
            waiting.popleft()(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.alive = False
        self._unsent.clear()
        self._waiting.clear()
        for future in self._calls:
            if not future.done():
                future.set_exception(LinkLost())
        self._link.dropped(self)
        if not self.closed.done():
            self.closed.set_result(None)


class Link:
    """Keeps one connection to the store at `url` for as long as `run` runs, with backoff between attempts.

    Is a `Sessions`. `silence_s` is after how long listeners hear of silence; after `reply_timeout_s` of it the connection is
    given up, since a peer that is gone may never say so.
    """

    def __init__(self, url: str, clock: Clock, *, silence_s: float = 0.05, reply_timeout_s: float = 5.0) -> None:
        self._options: Mapping[str, Any] = parse_url(url)
        self._clock = clock
        self._silence_s = silence_s
        self._reply_timeout_s = reply_timeout_s
        self._session: LinkSession | None = None
        self._arrived = asyncio.Event()
        # See `stir`.
        self._stirred = asyncio.Event()
        self._listeners: list[LinkListener] = []
        self._ended = False
        # At the last look: when the connection was heard, and how long it had been silent.
        self._looked = (0.0, 0.0)

    @property
    def quiet_s(self) -> float:
        """Seconds in which replies were owed and none came, as of the last look. A loop that was busy has not listened."""
        session, (heard, quiet_s) = self._session, self._looked
        return quiet_s if session is not None and session.owed and session.heard == heard else 0.0

    @property
    def current(self) -> LinkSession | None:
        """The connection, if there is one."""
        return self._session

    def listen(self, listener: LinkListener) -> None:
        """From now on this one is told too."""
        self._listeners.append(listener)

    async def session(self) -> LinkSession:
        """The current connection; waits while there is none."""
        while self._session is None:
            await self._arrived.wait()
        return self._session

    async def run(self) -> None:
        """Connects, and connects again, until cancelled."""
        backoff_s = _FIRST_BACKOFF_S
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="link-watch")
            while True:
                session = await self._connect()
                if session is None:
                    await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 — spreads reconnects
                    backoff_s = min(_MOST_BACKOFF_S, backoff_s * 2)
                    continue
                backoff_s = _FIRST_BACKOFF_S
                await self._hold(session)

    async def _hold(self, session: LinkSession) -> None:
        """From the connection's first moment to its last."""
        if not session.alive:
            return
        self._session = session
        self._arrived.set()
        for listener in self._listeners:
            listener.connected(session)
        try:
            await asyncio.shield(session.closed)
        except asyncio.CancelledError:
            self._ended = True
            raise
        finally:
            session.abort()

    def dropped(self, session: LinkSession) -> None:
        """A connection broke; called by itself, before anybody who waits on it goes on."""
        if session is not self._session:
            return
        self._session = None
        self._arrived.clear()
        self.stir()
        for listener in self._listeners:
            listener.lost()
        if not self._ended:
            _log.warning("link_lost")

    def stir(self) -> None:
        """There is something to watch: the first reply is owed, or the connection is gone."""
        self._stirred.set()

    async def _connect(self) -> LinkSession | None:
        """None when the store can't be reached or is not ready."""
        loop = asyncio.get_running_loop()
        session = LinkSession(self, loop)
        options = self._options
        try:
            async with asyncio.timeout(2.0):
                if "path" in options:
                    await loop.create_unix_connection(lambda: session, options["path"])
                else:
                    host, port = options.get("host", "localhost"), options.get("port", 6379)
                    await loop.create_connection(lambda: session, host, port, ssl=self._tls())
                await self._greet(session)
        except (OSError, TimeoutError, LinkLost, StoreRefused) as problem:
            session.abort()
            _log.info("link_not_connected", problem=type(problem).__name__)
            return None
        return session

    async def _greet(self, session: LinkSession) -> None:
        """Authenticates, chooses the database, and makes sure that the store is ready: while it loads it refuses this."""
        options = self._options
        if options.get("password") is not None:
            user = (options["username"],) if options.get("username") else ()
            await session.call("AUTH", *user, options["password"])
        if options.get("db"):
            await session.call("SELECT", options["db"])
        await session.call("PING")

    def _tls(self) -> ssl.SSLContext | None:
        if "connection_class" not in self._options:
            return None
        context = ssl.create_default_context(cafile=self._options.get("ssl_ca_certs"))
        if self._options.get("ssl_cert_reqs") == "none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def _watch(self) -> None:
        """Tells of silence. It sleeps while nothing is owed: looks of every process were a third of what an idle mesh did."""
        loop = asyncio.get_running_loop()
        while True:
            if self._session is not None and not self._session.owed:
                self._looked = (0.0, 0.0)
                self._stirred.clear()
                await self._stirred.wait()
            slept = loop.time()
            await asyncio.sleep(self._silence_s)
            # A loop that was busy has not listened: that is not the store's silence.
            busy_s = loop.time() - slept - self._silence_s
            await asyncio.sleep(0)
            session = self._session
            quiet_s = loop.time() - session.heard - busy_s if session is not None and session.owed else 0.0
            self._looked = (session.heard if session is not None else 0.0, quiet_s)
            if session is None or quiet_s >= self._silence_s:
                for listener in self._listeners:
                    listener.silent()
            if session is not None and quiet_s >= self._reply_timeout_s:
                session.abort()
