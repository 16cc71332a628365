"""The store behind the memory: what is kept there, found there, and taken from there.

Answers ── keep, touch, remove ──► Keeper ──┐
   │                                        ├─► Shelf ──► Valkey
   ├────── find, purge ─────────────────────┘              │
   └◄───── adopt ◄──────── Follower ◄── change stream ─────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import structlog

from services.cache.core.entries import Entry
from services.cache.core.known import Known
from services.cache.core.query import Query
from services.cache.core.records import Alike, Change, Damaged, StoredEntry, unpack_entry
from services.cache.core.store import ExactCache
from services.cache.core.target import Target
from services.cache.io.keeper import Keeper, Tally
from services.cache.io.shelf import Shelf
from streamway.errors import StoreUnavailable
from streamway.runtime.clock import Clock
from streamway.valkey.session import LinkLost, StoreRefused

_log = structlog.get_logger("cache")

_PURGE_S: Final = 2.0
_MOST_ASKED: Final = 256
# An entry in use is said to be so this often.
_TOUCH_S: Final = 60.0
_SWEEP_LOCK_MS: Final = 30_000
_UNREACHABLE: Final = (TimeoutError, LinkLost, StoreRefused)


class Findable(Protocol):
    """What finds entries by something else than their key, as the store needs it."""

    def cost_of(self, stored: StoredEntry) -> int:
        """Bytes that an entry will take there."""
        ...

    def found(self, entry: Entry, alike: Alike | None) -> None:
        """An entry is in memory again."""
        ...


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`limit_bytes` is for all entries in the store; a lookup waits `wait_s` for one; none lives longer than `most_ttl_s`."""

    limit_bytes: int
    wait_s: float
    most_ttl_s: float


class Persistence:
    """One for each process."""

    def __init__(
        self,
        cache: ExactCache,
        shelf: Shelf,
        keeper: Keeper,
        clock: Clock,
        options: StoreOptions,
        tally: Tally,
        findable: Findable,
    ) -> None:
        self.shelf = shelf
        self.keeper = keeper
        self.tally = tally
        self._cache = cache
        self._clock = clock
        self._options = options
        self._findable = findable
        self._asked = 0

    @property
    def known(self) -> Known:
        """What is in the store, as far as this process has heard."""
        return self.keeper.known

    def used(self, entry: Entry) -> None:
        """An entry answered: in the store, too, it is not the longest unused one now."""
        now = self._clock.monotonic()
        if entry.kept_at is not None and now - entry.touched_at > _TOUCH_S:
            entry.touched_at = now
            self.keeper.touch(entry)

    def may_find(self, query: Query) -> bool:
        """The store has an entry for it that is not in memory."""
        return self.known.get(query.key) is not None and self._asked < _MOST_ASKED

    async def find(self, query: Query) -> Entry | None:
        """The entry of a query from the store, in memory from now on; None where it has gone, or is late."""
        entry_id = self.known.get(query.key)
        if entry_id is None:
            return None
        self._asked += 1
        try:
            async with asyncio.timeout(self._options.wait_s):
                value = (await self.shelf.read(query.tenant, [entry_id]))[0]
        except _UNREACHABLE:
            self.tally.late += 1
            return None
        finally:
            self._asked -= 1
        stored = self._readable(query.tenant, entry_id, query.key, value)
        if stored is None or not self.adopt(stored):
            return None
        self.tally.read += 1
        return self._cache.get(query)

    async def load(self, tenant: str, ids: Sequence[str]) -> None:
        """Takes entries into memory as long as none has to go for them. Raises LinkLost and StoreRefused."""
        for entry_id, value in zip(ids, await self.shelf.read(tenant, ids), strict=True):
            stored = self._readable(tenant, entry_id, None, value)
            if stored is not None and self._cache.entries.has_room(tenant, len(value or b"")):
                self.adopt(stored)

    def adopt(self, stored: StoredEntry) -> bool:
        """Takes an entry into memory and makes it findable; False where it has expired, or must go."""
        if self.keeper.removing(stored.id):
            return False
        entry = self._entry(stored)
        if not self._cache.adopt(entry):
            return False
        self._findable.found(entry, stored.alike)
        return True

    def remove(self, entry: Entry) -> None:
        """Removes one from memory now, from the store soon."""
        self._cache.entries.remove(entry.tenant, entry.id)
        self.keeper.remove(entry.tenant, entry.id, entry.key)

    async def purge(self, tenant: str, target: Target) -> int:
        """Removes from memory and store; gives their number. Raises StoreUnavailable where only the memory could be cleared."""
        going = self.keeper.going()
        removed = {entry.id for entry in self.drop(tenant, target)}
        self.keeper.tell(Change(target.kind, tenant, name=target.name))
        try:
            async with asyncio.timeout(_PURGE_S):
                rows = await self.shelf.rows(tenant, partial(self._is_damaged, tenant))
                keys = {id_: row.key for id_, (row, _) in rows.items() if target.covers(row)}
                size_bytes, _ = await self.shelf.remove(tenant, list(keys))
        except _UNREACHABLE as problem:
            _log.warning("cache_not_purged", problem=type(problem).__name__)
            raise StoreUnavailable from problem
        for id_, key in keys.items():
            self.known.remove(key, id_)
        if keys:
            self.known.holds(tenant, size_bytes)
        return len(removed | (keys.keys() - going))

    async def remove_by_id(self, tenant: str, entry_id: str) -> int:
        """Removes one entry that may be in memory or not; gives their number. Raises StoreUnavailable."""
        entry = self._cache.entries.peek(tenant, entry_id)
        if entry is not None:
            self.remove(entry)
        try:
            async with asyncio.timeout(_PURGE_S):
                _, removed = await self.shelf.remove(tenant, [entry_id])
        except _UNREACHABLE as problem:
            raise StoreUnavailable from problem
        if removed:
            self.keeper.tell(Change("gone", tenant, (entry_id,), (b"",), held_bytes=await self._size_bytes(tenant)))
        return int(entry is not None or removed > 0)

    def drop(self, tenant: str, target: Target) -> list[Entry]:
        """Removes from memory, and from what is still to be written."""
        self.keeper.revoke(lambda entry: entry.tenant == tenant and target.covers(entry))
        return self._cache.entries.remove_where(tenant, target.covers)

    async def sweep(self) -> int:
        """Removes from the index what has expired in the store; gives the number. One cache of the mesh does it."""
        removed = 0
        try:
            if not await self.shelf.may_sweep(_SWEEP_LOCK_MS):
                return 0
            now_ms = int(self._clock.unix() * 1000)
            for tenant in await self.shelf.tenants(now_ms):
                rows = await self.shelf.rows(tenant, partial(self._is_damaged, tenant))
                expired = {id_: row.key for id_, (row, _) in rows.items() if row.expires_ms <= now_ms}
                if not expired:
                    continue
                size_bytes, _ = await self.shelf.remove(tenant, list(expired))
                self.keeper.tell(Change("gone", tenant, tuple(expired), tuple(expired.values()), held_bytes=size_bytes))
                for id_, key in expired.items():
                    self.known.remove(key, id_)
                self.known.holds(tenant, size_bytes)
                removed += len(expired)
        except _UNREACHABLE:
            pass
        return removed

    async def _size_bytes(self, tenant: str) -> int:
        try:
            return await self.shelf.size_bytes(tenant)
        except _UNREACHABLE:
            return self.known.of(tenant)

    def _readable(self, tenant: str, entry_id: str, key: bytes | None, value: bytes | None) -> StoredEntry | None:
        """The entry, if it is what was asked for; else it is no longer known, and what is damaged is removed."""
        if value is None:
            if key is not None:
                self.known.remove(key, entry_id)
            return None
        try:
            stored = unpack_entry(value)
        except Damaged:
            self._is_damaged(tenant, entry_id, key or b"")
            return None
        if (stored.tenant, stored.id) != (tenant, entry_id) or (key is not None and stored.key != key):
            self._is_damaged(tenant, entry_id, key or b"")
            return None
        return stored

    def _is_damaged(self, tenant: str, entry_id: str, key: bytes = b"") -> None:
        self.tally.damaged += 1
        _log.warning("cache_entry_damaged", entry=entry_id)
        self.keeper.remove(tenant, entry_id, key)

    def _entry(self, stored: StoredEntry) -> Entry:
        now, unix_s = self._clock.monotonic(), self._clock.unix()
        return Entry(
            *(stored.id, stored.tenant, stored.key, stored.model, stored.body),
            stored_at=now - (unix_s - stored.stored_ms / 1000),
            expires_at=now + stored.expires_ms / 1000 - unix_s,
            extra_bytes=self._findable.cost_of(stored),
            cost=stored.cost,
            tags=stored.tags,
            folded=stored.folded,
            kept_at=now,
        )
