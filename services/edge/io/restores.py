"""What each client connection has running, kept where every edge finds it.

    sw:conn:{9f…}   hash   tenant → acme, 0197… → "1048999-17 q1" (last cursor that was sent, and the client's name for it)

A client that shows the id at any edge, on any surface, gets its live generations back. Written when a generation is opened and,
where the cursor moved, once a second for all connections in one write; it outlives the connection by the grace. Without a store
nothing is kept, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from services.edge.io.generation import Generation
from streamway.errors import Malformed, StoreUnavailable
from streamway.journal.cursor import Cursor
from streamway.runtime.ids import new_secret_id
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import Argument, LinkLost, Session, StoreRefused

_log = structlog.get_logger("edge")

_EVERY_S: Final = 1.0
_STORE_WAIT_S: Final = 2.0
_TENANT: Final = b"tenant"


@dataclass(frozen=True, slots=True)
class Stored:
    """A generation that a connection had."""

    generation: str
    cursor: Cursor
    name: str


class _Kept:
    """One generation of a connection, and what the store has of it. Once it has ended only until when it stays is kept."""

    __slots__ = ("generation", "name", "until", "written")

    def __init__(self, generation: Generation, name: str) -> None:
        self.generation: Generation | None = generation
        self.name = name
        self.written: Cursor | None = None
        self.until = 0.0


class Restorable:
    """One client connection under its restore id."""

    __slots__ = ("_kept", "_renewed", "_restores", "id", "tenant")

    def __init__(self, restores: Restores, id_: str, tenant: str) -> None:
        self.id = id_
        self.tenant = tenant
        self._restores = restores
        self._kept: dict[str, _Kept] = {}
        self._renewed = 0.0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, generation: Generation, name: str = "") -> None:
        """From now on it can be restored; `name` is what the client calls it."""
        self._kept[generation.id] = _Kept(generation, name)
        self._restores.changed(self, generation.id)

    def write_again(self) -> None:
        """The store may have lost what it was told."""
        for kept in self._kept.values():
            kept.written = None

    def close(self) -> None:
        """The connection has ended; what it had can be restored for the grace."""
        self._restores.closed(self)
        self._kept.clear()

    def commands(
        self, now: float, grace_s: float, *, last: bool, only: Iterable[str] | None = None
    ) -> Iterable[tuple[Argument, ...]]:
        """What the store must be told, of all generations or `only` of some. `last`: the connection has ended."""
        key = keys.connection(self.id)
        fields: list[Argument] = []
        of = self._kept if only is None else {id_: self._kept[id_] for id_ in only if id_ in self._kept}
        for id_, kept in list(of.items()):
            generation = kept.generation
            if generation is None:
                if now >= kept.until:
                    del self._kept[id_]
                    yield ("HDEL", key, id_)
                continue
            if generation.id != id_:
                # An idempotency key attached it to an earlier one.
                del self._kept[id_]
                self._kept[generation.id] = kept
                kept.written = None
                yield ("HDEL", key, id_)
            cursor = generation.cursor
            if cursor != kept.written:
                kept.written = cursor
                fields += [generation.id, f"{cursor} {kept.name}"]
            if generation.ended:
                kept.generation, kept.until = None, now + grace_s
        if fields:
            yield ("HSET", key, _TENANT, self.tenant, *fields)
        if fields or last or (self._kept and now - self._renewed >= grace_s / 3):
            self._renewed = now
            # From the last sign of the client on, however long ago the last renewal was.
            yield ("PEXPIRE", key, int((grace_s * (1 if last else 4 / 3) + _EVERY_S) * 1000))


class Restores:
    """All connections of this edge that have something to restore."""

    def __init__(self, link: Link, grace_s: float) -> None:
        self._link = link
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._open: set[Restorable] = set()
        # The generations that the store has not been told of.
        self._news: dict[Restorable, list[str]] = {}
        link.listen(self)

    def open(self, tenant: str) -> Restorable:
        """A connection under a new id."""
        return Restorable(self, new_secret_id(), tenant)

    async def join(self, restore_id: str, tenant: str) -> Restorable:
        """The connection a client shows the id of, so that what it opens now is restored with the rest; a new one when this
        tenant has no such connection."""
        if restore_id:
            try:
                if await self._tenant_of(restore_id) == tenant:
                    return Restorable(self, restore_id, tenant)
            except StoreUnavailable:
                pass
        return self.open(tenant)

    async def read(self, restore_id: str, tenant: str) -> list[Stored]:
        """What a connection had, oldest first; nothing where the tenant has no such connection. Raises StoreUnavailable."""
        row = await self._ask("HGETALL", keys.connection(restore_id))
        fields: dict[bytes, bytes] = dict(zip(row[::2], row[1::2], strict=True))
        if fields.pop(_TENANT, None) != tenant.encode():
            return []
        found = []
        for generation, value in sorted(fields.items()):
            cursor, _, name = value.decode().partition(" ")
            try:
                found.append(Stored(generation.decode(), Cursor.parse(cursor), name))
            except Malformed:
                _log.error("restore_unreadable", generation=generation.decode(errors="replace"))
        return found

    def changed(self, connection: Restorable, generation: str) -> None:
        """A connection has a new generation: written with those of the same turn of the loop."""
        if not self._news:
            self._loop.call_soon(self._write_news)
        self._news.setdefault(connection, []).append(generation)
        self._open.add(connection)

    def closed(self, connection: Restorable) -> None:
        """A connection has ended."""
        self._open.discard(connection)
        self._news.pop(connection, None)
        if connection:
            self._write([connection], last=True)

    async def run(self) -> None:
        """Writes what has moved, each second, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            self._write(self._open)
            self._open = {connection for connection in self._open if connection}

    # --- LinkListener

    def connected(self, session: Session) -> None:
        for connection in self._open:
            connection.write_again()

    def lost(self) -> None:
        """Nothing can be told until there is a new one."""

    def silent(self) -> None:
        """Nobody waits for it."""

    # --- Writing

    def _write_news(self) -> None:
        news, self._news = self._news, {}
        for connection, new in news.items():
            # Not all of its generations: there may be thousands, and hundreds of new ones a second.
            self._write([connection], only=new)

    def _write(
        self, connections: Iterable[Restorable], *, last: bool = False, only: Iterable[str] | None = None
    ) -> None:
        session = self._link.current
        if session is None:
            return
        now = self._loop.time()
        for connection in connections:
            for command in connection.commands(now, self._grace_s, last=last, only=only):
                session.send(command, _ignore)

    async def _tenant_of(self, restore_id: str) -> str:
        tenant: bytes | None = await self._ask("HGET", keys.connection(restore_id), _TENANT)
        return (tenant or b"").decode()

    async def _ask(self, *command: Argument) -> Any:
        try:
            async with asyncio.timeout(_STORE_WAIT_S):
                session: Session = await self._link.session()
                return await session.call(*command)
        except (TimeoutError, LinkLost, StoreRefused):
            raise StoreUnavailable from None


def _ignore(_: Any) -> None:
    """The next second writes again what has moved since."""
