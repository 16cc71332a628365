"""What other caches change. One connection reads the change stream; after a gap everything is read again."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, Protocol

import structlog

from services.cache.core.known import Known
from services.cache.core.records import Change, Damaged, unpack_changes
from services.cache.core.store import ExactCache
from services.cache.core.target import Target
from services.cache.io.persistence import Persistence
from services.cache.io.shelf import Shelf
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import LinkLost, Session, StoreRefused

_log = structlog.get_logger("cache")

_BLOCK_MS: Final = 2_000
_MOST_A_READ: Final = 500
_PAUSE_S: Final = 0.5
_MOST_LOADS: Final = 2_000
_LOAD_PAGE: Final = 20
_AT_ONCE: Final = 1_000
# With less the memory counts as full.
_ROOM_BYTES: Final = 16 * 1024


class _Gap(Exception):
    """Changes were missed."""


class Lessons(Protocol):
    """Who hears what others have learned."""

    async def learned(self, tenant: str) -> None:
        """What is known of a tenant is to be read. Raises LinkLost and StoreRefused."""
        ...

    def wrong(self, change: Change) -> None:
        """An entry was a wrong answer."""
        ...


class Follower:
    """Keeps what is known, and what is in memory, up to date."""

    def __init__(
        self,
        blocking: Link,
        shelf: Shelf,
        persistence: Persistence,
        cache: ExactCache,
        clock: Clock,
        origin: str,
        lessons: Lessons,
    ) -> None:
        self._blocking = blocking
        self._shelf = shelf
        self._persistence = persistence
        self._cache = cache
        self._clock = clock
        self._origin = origin
        self._lessons = lessons
        self._loads: deque[tuple[str, str]] = deque(maxlen=_MOST_LOADS)
        self._to_load = asyncio.Event()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._load(), name="cache-load")
            while True:
                try:
                    session = await self._blocking.session()
                    position = await self._rebuild()
                    self.ready.set()
                    await self._follow(session, position)
                except _Gap:
                    _log.info("cache_changes_missed")
                except (LinkLost, StoreRefused) as problem:
                    _log.info("cache_not_followed", problem=type(problem).__name__)
                    await asyncio.sleep(_PAUSE_S)

    async def _follow(self, session: Session, position: int) -> None:
        """Raises _Gap when changes are missing between the last one read and the next."""
        while True:
            found: Any = await session.call(
                *("XREAD", "COUNT", _MOST_A_READ, "BLOCK", _BLOCK_MS, "STREAMS", keys.cache_changes()),
                f"{position}-0",
            )
            if not found:
                # A stream that has gone, or was set back with the rest of the store.
                if await self._shelf.position() < position:
                    raise _Gap
                continue
            for id_, fields in found[0][1]:
                number = int(id_.partition(b"-")[0])
                if position and number != position + 1:
                    raise _Gap
                position = number
                await self._apply(fields[1])

    async def _apply(self, record: bytes) -> None:
        try:
            told = unpack_changes(record)
        except Damaged:
            self._persistence.tally.damaged += 1
            raise _Gap from None
        own = told.origin == self._origin
        for change in told.changes:
            if change.what == "lost" and not own:
                raise _Gap
            self._note(change, own)
            if change.what == "learned" and not own:
                await self._lessons.learned(change.tenant)

    def _note(self, change: Change, own: bool) -> None:
        known, tenant = self._persistence.known, change.tenant
        match change.what:
            case "added":
                for id_, key in zip(change.ids, change.keys, strict=False):
                    known.add(key, id_)
                    if not own:
                        self._loads.append((tenant, id_))
                        self._to_load.set()
                known.holds(tenant, change.held_bytes)
            case "gone":
                for id_, key in zip(change.ids, change.keys, strict=False):
                    known.remove(key, id_)
                    if not own:
                        self._cache.entries.remove(tenant, id_)
                known.holds(tenant, change.held_bytes)
            case "purged_model" | "purged_tag" | "purged_all" if not own:
                self._persistence.drop(tenant, Target(change.what, change.name))
            case "wrong" if not own:
                self._lessons.wrong(change)

    async def _load(self) -> None:
        """Others' new entries, while there is room: whoever takes over a tenant should have them."""
        while True:
            await self._to_load.wait()
            self._to_load.clear()
            while self._loads:
                tenant, id_ = self._loads.popleft()
                ids = [id_]
                while self._loads and self._loads[0][0] == tenant and len(ids) < _LOAD_PAGE:
                    ids.append(self._loads.popleft()[1])
                if self._cache.entries.has_room(tenant, _ROOM_BYTES):
                    try:
                        await self._persistence.load(tenant, ids)
                    except (LinkLost, StoreRefused):
                        continue

    async def _rebuild(self) -> int:
        """Reads what there is; gives the number of the change that it begins behind."""
        began, unix_ms = self._clock.monotonic(), int(self._clock.unix() * 1000)
        position = await self._shelf.position()
        known = Known()
        tenants = await self._shelf.tenants(unix_ms)
        for tenant in tenants:
            rows = await self._shelf.rows(tenant, lambda _: None)
            for id_, (row, _) in sorted(rows.items(), key=lambda each: each[1][0].expires_ms):
                if row.expires_ms > unix_ms:
                    known.add(row.key, id_)
            known.holds(tenant, await self._shelf.size_bytes(tenant))
        self._persistence.keeper.known = known
        self._persistence.tally.rebuilt += 1
        gone = await self._drop_what_went(known, began)
        for tenant in tenants:
            await self._lessons.learned(tenant)
            await self._take_in(tenant)
        tell = _log.info if len(known) or gone else _log.debug
        tell("cache_read", entries=len(known), in_memory=len(self._cache.entries), gone=gone)
        return position

    async def _drop_what_went(self, known: Known, began: float) -> int:
        """What the store had and has no more was removed by somebody meanwhile."""
        gone = 0
        for number, entry in enumerate(self._cache.entries.all()):
            if entry.kept_at is not None and entry.kept_at < began and known.get(entry.key) != entry.id:
                gone += self._cache.entries.remove(entry.tenant, entry.id)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return gone

    async def _take_in(self, tenant: str) -> None:
        ids = await self._shelf.last_used(tenant)
        for start in range(0, len(ids), _LOAD_PAGE):
            if not self._cache.entries.has_room(tenant, _ROOM_BYTES):
                return
            page = [id_ for id_ in ids[start : start + _LOAD_PAGE] if not self._cache.entries.knows(tenant, id_)]
            if page:
                await self._persistence.load(tenant, page)
