"""Writes what the cache has to the store, off the path of everybody: bounded, all of a moment at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from services.cache.core.entries import Entry
from services.cache.core.known import Known
from services.cache.core.records import Alike, Change, Row, StoredEntry, pack_changes, pack_entry, pack_row
from services.cache.io.shelf import Left, Put, Shelf
from streamway.runtime.clock import Clock
from streamway.valkey.session import LinkLost, StoreRefused

_log = structlog.get_logger("cache")

_MOST_WAITING: Final = 2_000
_MOST_WAITING_BYTES: Final = 64 * 1024**2
_MOST_AT_ONCE: Final = 100
_MOST_AT_ONCE_BYTES: Final = 4 * 1024**2
_MOST_REMOVALS: Final = 10_000
_MOST_CHANGES: Final = 1_000
_MOST_TOUCHED: Final = 10_000
_ROUND_S: Final = 0.02
_PAUSE_S: Final = 1.0
# What the index needs for an entry in the store.
_INDEX_BYTES: Final = 400


@dataclass(slots=True)
class Tally:
    """What became of writes and reads since the start."""

    kept: int = 0
    dropped: int = 0
    refused: int = 0
    damaged: int = 0
    read: int = 0
    late: int = 0
    rebuilt: int = 0
    trimmed: int = 0


class Keeper:
    """The one writer of a process. Nothing waits for it, and what it cannot write is served from memory.

    `origin` names this process to those who follow. `limit_of` says what a tenant's entries may take in the store,
    `limit_bytes` what all may.
    """

    def __init__(
        self, shelf: Shelf, clock: Clock, origin: str, limit_bytes: int, limit_of: Callable[[str], int], tally: Tally
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self._origin = origin
        self._limit_bytes = limit_bytes
        self._limit_of = limit_of
        self._tally = tally
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._waiting: dict[str, tuple[Entry, Alike | None]] = {}
        self._waiting_bytes = 0
        # On the way to the store, and of these what must not be there.
        self._sent: set[str] = set()
        self._revoked: set[str] = set()
        self._removals: dict[str, tuple[str, bytes]] = {}
        self._changes: list[Change] = []
        self._touched: dict[str, str] = {}
        self._trouble = ""
        # Replaced as a whole when it is built anew.
        self.known = Known()

    def keep(self, entry: Entry, alike: Alike | None) -> None:
        """Writes an entry soon. Where too much waits the oldest is dropped."""
        self.forget(entry.id)
        self._waiting[entry.id] = (entry, alike)
        self._waiting_bytes += entry.size_bytes
        while len(self._waiting) > _MOST_WAITING or self._waiting_bytes > _MOST_WAITING_BYTES:
            self.forget(next(iter(self._waiting)))
            self._tally.dropped += 1
        self._awake()

    def forget(self, entry_id: str) -> None:
        """An entry that was not written yet need not be."""
        found = self._waiting.pop(entry_id, None)
        if found is not None:
            self._waiting_bytes -= found[0].size_bytes

    def revoke(self, which: Callable[[Entry], bool]) -> None:
        """These must not be in the store. One that is on its way is removed behind."""
        for entry, _ in list(self._waiting.values()):
            if which(entry):
                entry.revoked = True
                self.forget(entry.id)
                if entry.id in self._sent:
                    self._revoked.add(entry.id)

    def remove(self, tenant: str, entry_id: str, key: bytes) -> None:
        """Removes an entry from the store as soon as it can be reached."""
        self.revoke(lambda entry: entry.id == entry_id)
        self.known.remove(key, entry_id)
        self._removals[entry_id] = (tenant, key)
        if len(self._removals) > _MOST_REMOVALS:
            del self._removals[next(iter(self._removals))]
            self._tally.dropped += 1
        self._awake()

    def removing(self, entry_id: str) -> bool:
        """It is to go, and may still be in the store."""
        return entry_id in self._removals or entry_id in self._revoked

    def going(self) -> set[str]:
        """All of which that is so."""
        return {*self._removals, *self._revoked}

    def touch(self, entry: Entry) -> None:
        """An entry was used."""
        if len(self._touched) < _MOST_TOUCHED:
            self._touched[entry.id] = entry.tenant

    def tell(self, change: Change) -> None:
        """Others are to know. What cannot be told makes them read everything again."""
        if len(self._changes) >= _MOST_CHANGES:
            self._changes = [Change("lost", "")]
        self._changes.append(change)
        self._awake()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._waiting or self._removals or self._changes:
                    await self._round()
                self._idle.set()
            except (LinkLost, StoreRefused) as problem:
                self._ill(problem)
                await asyncio.sleep(_PAUSE_S)
                self._wake.set()
            # What comes within a moment goes together.
            await asyncio.sleep(_ROUND_S)

    async def settle(self, timeout_s: float) -> None:
        """Waits until everything has been written, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            _log.info("cache_not_all_kept", entries=len(self._waiting))

    async def _round(self) -> None:
        await self._remove()
        await self._keep()
        await self._tell()
        await self._make_room()
        self._touch()

    async def _tell(self) -> None:
        changes, self._changes = self._changes, []
        if not changes:
            return
        try:
            await self._shelf.tell(pack_changes(self._origin, changes))
        except (LinkLost, StoreRefused):
            # Told again with what has come meanwhile; twice does no harm.
            self._changes = [*changes, *self._changes] if len(changes) < _MOST_CHANGES else [Change("lost", "")]
            raise

    async def _remove(self) -> None:
        by_tenant: dict[str, dict[str, bytes]] = defaultdict(dict)
        for id_, (tenant, key) in list(self._removals.items())[:_MOST_AT_ONCE]:
            by_tenant[tenant][id_] = key
        for tenant, gone in by_tenant.items():
            size_bytes, _ = await self._shelf.remove(tenant, list(gone))
            self.known.holds(tenant, size_bytes)
            for id_ in gone:
                self._removals.pop(id_, None)
            self._changes.append(Change("gone", tenant, tuple(gone), tuple(gone.values()), held_bytes=size_bytes))

    async def _keep(self) -> None:
        now_ms = int(self._clock.unix() * 1000)
        batch = self._batch(now_ms)
        self._sent = {put.id for _, put in batch}
        try:
            replies = await self._shelf.keep([put for _, put in batch], now_ms)
        finally:
            for entry, _ in batch:
                if entry.revoked:
                    self.remove(entry.tenant, entry.id, entry.key)
            self._sent.clear()
            self._revoked.clear()
        added: dict[str, list[Entry]] = defaultdict(list)
        for (entry, put), reply in zip(batch, replies, strict=True):
            if isinstance(reply, StoreRefused):
                self._tally.refused += 1
                self._ill(reply)
            else:
                self._kept(entry, reply)
                added[entry.tenant].append(entry)
            if put.id in self._waiting and self._waiting[put.id][0] is entry:
                self.forget(put.id)
        for tenant, entries in added.items():
            ids, names = tuple(entry.id for entry in entries), tuple(entry.key for entry in entries)
            self._changes.append(Change("added", tenant, ids, names, held_bytes=self.known.of(tenant)))

    def _batch(self, now_ms: int) -> list[tuple[Entry, Put]]:
        batch: list[tuple[Entry, Put]] = []
        size = 0
        for entry, alike in list(self._waiting.values())[:_MOST_AT_ONCE]:
            put = self._put(entry, alike, now_ms)
            size += len(put.value)
            if batch and size > _MOST_AT_ONCE_BYTES:
                break
            batch.append((entry, put))
        return batch

    def _put(self, entry: Entry, alike: Alike | None, now_ms: int) -> Put:
        now = self._clock.monotonic()
        expires_ms = now_ms + max(1, int((entry.expires_at - now) * 1000))
        stored_ms = now_ms - int((now - entry.stored_at) * 1000)
        value = pack_entry(
            StoredEntry(
                *(entry.id, entry.tenant, entry.key, entry.model, entry.tags, stored_ms, expires_ms, entry.cost),
                *(entry.body, entry.folded, alike),
            )
        )
        size_bytes = len(value) + _INDEX_BYTES
        row = pack_row(Row(entry.key, entry.model, entry.tags, expires_ms), size_bytes)
        return Put(entry.tenant, entry.id, value, row, size_bytes, expires_ms - now_ms, self._limit_of(entry.tenant))

    def _kept(self, entry: Entry, left: Left) -> None:
        self._well()
        if entry.revoked:
            self._after(entry.tenant, left)
            return
        self._tally.kept += 1
        entry.kept_at = self._clock.monotonic()
        old = self.known.get(entry.key)
        self.known.add(entry.key, entry.id)
        self._after(entry.tenant, left)
        if old is not None and old != entry.id:
            self.remove(entry.tenant, old, entry.key)

    def _after(self, tenant: str, left: Left) -> None:
        self.known.holds(tenant, left.size_bytes)
        if left.gone:
            self._tally.trimmed += len(left.gone)
            for id_, key in left.gone:
                self.known.remove(key, id_)
            ids, names = zip(*left.gone, strict=True)
            self._changes.append(Change("gone", tenant, ids, names, held_bytes=left.size_bytes))

    async def _make_room(self) -> None:
        """All tenants together: whose entries take most gives."""
        over = self.known.size_bytes - self._limit_bytes
        tenant = self.known.largest() if over > 0 else None
        if tenant is not None:
            self._after(tenant, await self._shelf.trim(tenant, max(0, self.known.of(tenant) - over)))

    def _touch(self) -> None:
        by_tenant: dict[str, list[str]] = defaultdict(list)
        for id_, tenant in self._touched.items():
            by_tenant[tenant].append(id_)
        self._touched.clear()
        for tenant, ids in by_tenant.items():
            self._shelf.touch(tenant, ids, int(self._clock.unix() * 1000))

    def _awake(self) -> None:
        self._idle.clear()
        self._wake.set()

    def _ill(self, problem: Exception) -> None:
        kind = "full" if str(problem).startswith("OOM") else type(problem).__name__
        if kind != self._trouble:
            _log.warning("cache_not_kept", problem=kind)
        self._trouble = kind

    def _well(self) -> None:
        if self._trouble:
            _log.info("cache_kept_again")
        self._trouble = ""
