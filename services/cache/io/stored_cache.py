"""What keeps a cache in the store, put together: two connections, one writer, one follower."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from services.cache.core.entries import JITTER
from services.cache.core.store import ExactCache
from services.cache.io.answers import Answers
from services.cache.io.follower import Follower
from services.cache.io.keeper import Keeper, Tally
from services.cache.io.ledgers import Ledgers
from services.cache.io.lessons import Lessons
from services.cache.io.persistence import Persistence, StoreOptions
from services.cache.io.shelf import Shelf
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_secret_id
from streamway.runtime.tasks import TaskScope
from streamway.valkey.link import Link

_log = structlog.get_logger("cache")

# Longer than a read of the follower blocks.
_BLOCKING_REPLY_S: Final = 10.0
# A cache that has not read everything by then begins with less, and goes on reading.
_START_S: Final = 10.0


class StoredCache:
    """Runs in `scope` from `start` on."""

    def __init__(
        self, url: str, clock: Clock, options: StoreOptions, cache: ExactCache, answers: Answers, scope: TaskScope
    ) -> None:
        self._scope = scope
        self._link = Link(url, clock)
        self._blocking = Link(url, clock, reply_timeout_s=_BLOCKING_REPLY_S)
        self._tasks: set[asyncio.Task[None]] = set()
        tally, origin = Tally(), new_secret_id()
        shelf = Shelf(self._link, int(options.most_ttl_s * (1 + JITTER) * 1000))
        entries = cache.entries
        # As configured: what memory gives up while it is short is no reason to keep more in the store.
        whole_bytes = entries.limit_bytes

        def limit_of(tenant: str) -> int:
            return int(options.limit_bytes * entries.tenant_limit_bytes(tenant) / whole_bytes)

        self._keeper = Keeper(shelf, clock, origin, options.limit_bytes, limit_of, tally)
        persistence = Persistence(cache, shelf, self._keeper, clock, options, tally, answers)
        answers.persistence = persistence
        self._answers = answers
        ledgers = Ledgers(answers.books, cache, shelf, clock)
        self._lessons = Lessons(lambda: answers.likeness, ledgers, shelf, self._keeper, clock)
        if answers.likeness is not None:
            answers.likeness.tell = self._keeper.tell
        self._follower = Follower(self._blocking, shelf, persistence, cache, clock, origin, self._lessons)

    async def start(self) -> None:
        """Connects and reads what there is, or as much of it as can be read in ten seconds."""
        for name, work in (
            ("store-link", self._link.run()),
            ("store-blocking", self._blocking.run()),
            ("store-write", self._keeper.run()),
            ("store-follow", self._follower.run()),
            ("store-lessons", self._lessons.run()),
            ("store-remake", self._answers.remake()),
        ):
            self._tasks.add(self._scope.spawn(work, name))
        try:
            async with asyncio.timeout(_START_S):
                await self._follower.ready.wait()
        except TimeoutError:
            _log.warning("cache_still_reading")

    async def failed(self) -> None:
        """Ends only with a part that must not."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def settle(self, timeout_s: float) -> None:
        """Waits until everything has been written, at most so long."""
        await self._lessons.save(all_=True)
        await self._keeper.settle(timeout_s)
