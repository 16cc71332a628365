"""The dictionaries that kept contexts are packed with: in the store for as long as anything that needs them.

    sw:context-dictionary:{tenant}:1f0e…   string   the dictionary; 1f0e… is what segments call it
    sw:context-dictionaries:{tenant}       zset     their names → Unix ms of their making: the latest one is packed with
    sw:context-dictionaries:{tenant}:seen  string   somebody has looked lately whether a newer one would be better

Every segment says which one it needs, so a newer one takes nothing from what is there. A dictionary lives as long as a context
and an hour; whoever reads or writes a context that needs it says so at least every ten minutes, so it outlives them all. A
tenant has `_MOST` at most: while that many are needed no other is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from services.router.core import context_codec as codec
from services.router.core import context_dictionary as making
from services.router.core.context_codec import Damaged
from services.router.core.context_table import ContextTable, Name
from services.router.io.journal import Journal
from services.router.metrics import RouterMetrics
from streamway.runtime.clock import Clock
from streamway.runtime.recent import Recent
from streamway.runtime.threads import in_thread
from streamway.valkey import keys
from streamway.valkey.session import Session

_log = structlog.get_logger("router")
_MARGIN_S: Final = 3_600.0
_TOUCH_EVERY_S: Final = 600.0
# How old what this router thinks to be the latest one may be.
_LOOK_EVERY_S: Final = 300.0
# Between two looks whether a newer one is worth it, of all routers.
_MAKE_EVERY_S: Final = 3_600.0
_MOST: Final = 8
# In this router's memory: as many times 64 kB at most.
_REMEMBERED: Final = 256
_TENANTS: Final = 4_096
_LEAST_BYTES: Final = 2_000


class ContextDictionaries:
    """See the module. `size_bytes`: of a new one; 0: none is made or packed with, those that are needed are read.

    `keep_s`: how long a context is kept, `limit_bytes`: how long its text may be.
    """

    def __init__(
        self,
        journal: Journal,
        table: ContextTable,
        clock: Clock,
        metrics: RouterMetrics,
        *,
        size_bytes: int,
        keep_s: float,
        limit_bytes: int,
    ) -> None:
        self._journal = journal
        self._table = table
        self._clock = clock
        self._metrics = metrics
        self._size_bytes = size_bytes
        self._keep_ms = int((keep_s + _MARGIN_S) * 1000)
        self._most_text_bytes = 2 * limit_bytes
        self._known: Recent[tuple[str, bytes], bytes] = Recent(_REMEMBERED)
        self._touched: Recent[tuple[str, bytes], float] = Recent(_TENANTS)
        # The latest one's name by tenant, empty where there is none, and when that was read.
        self._latest: Recent[str, tuple[bytes, float]] = Recent(_TENANTS)
        self._looked: Recent[str, float] = Recent(_TENANTS)

    async def needed(self, tenant: str, segments: Iterable[bytes]) -> Mapping[bytes, bytes]:
        """Those that segments of this tenant name, without what is gone; they live on for as long as these.

        Raises StoreUnavailable.
        """
        found = {}
        for name in codec.dictionaries_of(segments):
            dictionary = await self._one(tenant, name)
            if dictionary is not None:
                found[name] = dictionary
        return found

    async def latest(self, tenant: str) -> bytes:
        """What to pack with; empty where there is none. It lives for as long as what is packed now. Raises StoreUnavailable."""
        if not self._size_bytes:
            return b""
        known = self._latest.get(tenant)
        if known is None or self._clock.monotonic() - known[1] >= _LOOK_EVERY_S:
            known = await self._look(tenant)
        return (await self._one(tenant, known[0]) or b"") if known[0] else b""

    async def look_after(self) -> None:
        """Makes a dictionary for a tenant that has enough contexts here and would save by it: one at a time, it takes seconds
        of a thread. Raises StoreUnavailable.
        """
        if not self._size_bytes:
            return
        now = self._clock.monotonic()
        for tenant in self._table.tenants(making.LEARNED_FROM + making.JUDGED_BY):
            looked = self._looked.get(tenant)
            if looked is None or now - looked >= _MAKE_EVERY_S:
                self._looked.put(tenant, now)
                outcome = await self._made(tenant)
                self._metrics.context_dictionaries.labels(outcome).inc()
                if outcome in ("made", "no_better"):
                    break

    async def _made(self, tenant: str) -> str:
        names = self._table.latest(tenant, making.LEARNED_FROM + making.JUDGED_BY, _LEAST_BYTES)
        if len(names) < making.LEARNED_FROM + making.JUDGED_BY:
            return "too_few"
        if not await self._is_mine(tenant):
            return "looked_at"
        texts = await self._texts(names)
        old = await self.latest(tenant)
        judged, learned = texts[: making.JUDGED_BY], texts[making.JUDGED_BY :]
        new = await in_thread(lambda: making.trained(learned, self._size_bytes))
        if not await in_thread(lambda: making.is_better(new, old, judged)):
            return "no_better"
        if not await self._save(tenant, new):
            return "too_many"
        _log.info("context_dictionary_made", size_bytes=len(new), contexts=len(texts))
        return "made"

    async def _texts(self, names: Sequence[Name]) -> list[bytes]:
        texts = []
        for name in names:
            segments = self._table.peek(name)
            if segments is not None:
                try:
                    known = await self.needed(name.tenant, segments)
                    texts.append(b"".join(codec.unpack(segments, self._most_text_bytes, known)))
                except Damaged:
                    continue
            await asyncio.sleep(0)
        return texts

    # --- The store

    async def _one(self, tenant: str, name: bytes) -> bytes | None:
        dictionary = self._known.get((tenant, name))
        touched = self._touched.get((tenant, name))
        now = self._clock.monotonic()
        if dictionary is not None and touched is not None and now - touched < _TOUCH_EVERY_S:
            return dictionary
        key = keys.context_dictionary(tenant, name.hex())

        async def steps(session: Session) -> bytes | None:
            if await session.call("PEXPIRE", key, self._keep_ms):
                return dictionary or await session.call("GET", key)
            if dictionary is not None:
                # The store has lost it, this router has not.
                await session.call("SET", key, dictionary, "PX", self._keep_ms)
            return dictionary

        dictionary = await self._journal.steps(steps)
        if dictionary is None or codec.name_of(dictionary) != name:
            return None
        self._touched.put((tenant, name), now)
        return self._known.put((tenant, name), dictionary)

    async def _look(self, tenant: str) -> tuple[bytes, float]:
        async def steps(session: Session) -> list[bytes]:
            found: list[bytes] = await session.call("ZREVRANGE", keys.context_dictionaries(tenant), 0, 0)
            if found:
                await session.call("PEXPIRE", keys.context_dictionaries(tenant), self._keep_ms)
            return found

        found = await self._journal.steps(steps)
        return self._latest.put(tenant, (found[0] if found else b"", self._clock.monotonic()))

    async def _is_mine(self, tenant: str) -> bool:
        async def steps(session: Session) -> bool:
            key = keys.context_dictionaries_seen(tenant)
            return bool(await session.call("SET", key, 1, "NX", "PX", int(_MAKE_EVERY_S * 1000)))

        return await self._journal.steps(steps)

    async def _save(self, tenant: str, dictionary: bytes) -> bool:
        name, index = codec.name_of(dictionary), keys.context_dictionaries(tenant)

        async def steps(session: Session) -> bool:
            kept: list[bytes] = await session.call("ZRANGE", index, 0, -1)
            here = [each for each in kept if await session.call("EXISTS", keys.context_dictionary(tenant, each.hex()))]
            gone: list[Any] = [each for each in kept if each not in here]
            if gone:
                await session.call("ZREM", index, *gone)
            if len(here) >= _MOST:
                return False
            await session.call("SET", keys.context_dictionary(tenant, name.hex()), dictionary, "PX", self._keep_ms)
            await session.call("ZADD", index, int(self._clock.unix() * 1000), name)
            await session.call("PEXPIRE", index, self._keep_ms)
            return True

        saved = await self._journal.steps(steps)
        if saved:
            self._latest.put(tenant, (name, self._clock.monotonic()))
        return saved
