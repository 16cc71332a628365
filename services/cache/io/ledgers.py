"""What is told of tenants, saved in the store and read from there."""

from __future__ import annotations

from typing import Final

import structlog

from services.cache.core.books import Books, TenantBook
from services.cache.core.records import Damaged
from services.cache.core.saved_book import adopt_book, pack_book, unpack_book
from services.cache.core.store import ExactCache
from services.cache.io.shelf import Shelf
from streamway.runtime.clock import Clock

_log = structlog.get_logger("cache")

# A tenant that asks nothing for so long begins anew.
LIVES_MS: Final = 30 * 24 * 3600 * 1000


class Ledgers:
    """Everything raises LinkLost and StoreRefused. The last one that saves is right: routers send a tenant to one cache."""

    def __init__(self, books: Books, cache: ExactCache, shelf: Shelf, clock: Clock) -> None:
        self._books = books
        self._cache = cache
        self._shelf = shelf
        self._clock = clock

    async def save(self) -> list[str]:
        """Saves the books that something was written in; gives their tenants. What cannot be saved is tried again."""
        tenants = [*self._books.changed | self._cache.changed]
        for number, tenant in enumerate(tenants):
            try:
                await self._save(tenant)
            except BaseException:
                self._books.changed.update(tenants[number:])
                raise
        return tenants

    async def read(self, tenant: str) -> None:
        """Takes what an earlier life, or another cache, has saved, unless something was written here that is not saved."""
        book = self._books.entry(tenant)
        if book.adopted and tenant in self._books.changed | self._cache.changed:
            return
        await self._read(tenant, book)

    async def _save(self, tenant: str) -> None:
        book = self._books.entry(tenant)
        if not book.adopted:
            # Nobody has told of it yet: what there was goes on.
            await self._read(tenant, book)
        self._books.changed.discard(tenant)
        self._cache.changed.discard(tenant)
        value = pack_book(book, self._cache.counters(tenant))
        await self._shelf.put_book(tenant, value, int(self._clock.unix() * 1000), LIVES_MS)

    async def _read(self, tenant: str, book: TenantBook) -> None:
        value = await self._shelf.book(tenant)
        if value is None:
            book.adopted = True
            return
        try:
            adopt_book(book, self._cache.counters(tenant), unpack_book(value))
        except Damaged as problem:
            book.adopted = True
            _log.warning("cache_ledger_damaged", problem=str(problem))
