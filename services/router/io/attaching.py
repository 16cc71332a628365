"""Idempotency keys: the same request again leads to the generation that the first one began."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from services.router.core.idempotency import Claim, digest_of_key
from services.router.core.key_table import KeyTable, Seen
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.journal import Journal
from services.router.io.leading import led_to
from services.router.io.locating import Locator
from streamway.errors import GenerationNotFound, IdempotencyConflict, StoreUnavailable, StreamwayError
from streamway.following import Place
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.script import Script
from streamway.valkey.session import Session

# Between its claim and its record a request needs a few milliseconds; one that has neither after this long has died.
_RECORD_WAIT_S: Final = 2.0
_LOOK_S: Final = 0.05

# Takes a claim back, or over, if it still is the one that was seen. ARGV: that one, the new one or '', its time to live.
_EXCHANGE: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
""")


class Attaching:
    """An opener that attaches a request with a known key to what its key began, and lets `inner` begin everything else.

    The store knows the keys of all routers. While it is away this router goes by the keys it has seen itself: what begins
    then has no channel, and its key is known here alone, also when the store is back. `strict` is refused instead.
    """

    def __init__(
        self, inner: Opener, journal: Journal, locator: Locator, table: KeyTable, clock: Clock, ttl_s: float
    ) -> None:
        self._inner = inner
        self._journal = journal
        self._locator = locator
        self._table = table
        self._clock = clock
        self._ttl_ms = int(ttl_s * 1000)
        # Keys of which the first request is being decided.
        self._beginning: dict[str, asyncio.Event] = {}

    async def open(self, ask: Ask) -> Opened:
        """Raises IdempotencyConflict when the key began another request, StoreUnavailable, and what `inner` raises."""
        request = ask.request
        if not request.idempotency_key:
            return await self._inner.open(ask)
        key = keys.idempotency(request.tenant, digest_of_key(request.idempotency_key))
        mine = Claim(request.generation, ask.digest)
        seen = self._table.get(key, self._clock.monotonic())
        if seen is not None and not seen.stored:
            return await self._open_by_table(ask, key, mine)
        try:
            earlier = await self._claim(key, mine)
        except StoreUnavailable:
            if request.durability == common_pb2.DURABILITY_STRICT:
                raise
            return await self._open_by_table(ask, key, mine)
        if earlier is None or earlier.generation == mine.generation:
            return await self._begin(ask, key, mine, stored=True)
        if earlier.digest != mine.digest:
            raise IdempotencyConflict(earlier.generation)
        attached = await self._attach(ask, earlier)
        if attached is not None:
            return attached
        # Whoever claimed it died before anything ran.
        if await self._exchange(key, earlier, mine):
            return await self._begin(ask, key, mine, stored=True)
        return await self.open(ask)

    async def _begin(self, ask: Ask, key: str, mine: Claim, *, stored: bool) -> Opened:
        began = Seen(mine, durable=stored, stored=stored)
        self._table.put(key, began, self._clock.monotonic())
        decided = self._beginning[key] = asyncio.Event()
        try:
            opened = await self._inner.open(ask)
        except BaseException as problem:
            # Nothing runs, so the key is free again.
            self._table.drop(key, mine.generation)
            if stored and isinstance(problem, StreamwayError):
                with contextlib.suppress(StoreUnavailable):
                    await self._exchange(key, mine, None)
            raise
        else:
            if opened.place is None and not opened.durable:
                # All of the answer is told now, by the cache; there is nothing to read again.
                self._table.drop(key, mine.generation)
            else:
                place = opened.place or ("", "")
                self._table.put(key, Seen(mine, opened.durable, stored, *place), self._clock.monotonic())
            return opened
        finally:
            if self._beginning.get(key) is decided:
                del self._beginning[key]
            decided.set()

    async def _open_by_table(self, ask: Ask, key: str, mine: Claim) -> Opened:
        """Without the store, or for what began without it."""
        while True:
            seen = self._table.get(key, self._clock.monotonic())
            if seen is None:
                break
            if seen.claim.digest != mine.digest:
                raise IdempotencyConflict(seen.claim.generation)
            decided = self._beginning.get(key)
            if decided is None:
                return await self._attach_here(ask, seen)
            await decided.wait()
        # Told in `accepted`: nothing of it survives, and no other router knows its key.
        ask.request.durability = common_pb2.DURABILITY_OFF
        return await self._begin(ask, key, mine, stored=False)

    async def _attach_here(self, ask: Ask, seen: Seen) -> Opened:
        generation, worker, durable = seen.claim.generation, seen.worker, seen.durable
        place = Place(worker, seen.address) if worker else None
        try:
            known = await self._locator.known(generation, ask.request.tenant)
        except (StoreUnavailable, GenerationNotFound):
            # It has ended, or the store is away: its worker has it for a while, and its channel.
            durability = common_pb2.DURABILITY_RELAXED if durable else common_pb2.DURABILITY_OFF
        else:
            place, durable, durability, worker = known.place, known.durable, known.durability, known.worker
        return self._opened(ask, generation, worker, place, durability, durable=durable)

    async def _claim(self, key: str, mine: Claim) -> Claim | None:
        """The claim that was there; None: it is mine now."""

        async def claim(session: Session) -> bytes | None:
            if await session.call("SET", key, str(mine), "NX", "PX", self._ttl_ms) is not None:
                return None
            found: bytes | None = await session.call("GET", key)
            return found

        found = await self._journal.steps(claim)
        return Claim.parse(found.decode()) if found is not None else None

    async def _exchange(self, key: str, seen: Claim, new: Claim | None) -> bool:
        async def exchange(session: Session) -> bool:
            given = str(new) if new is not None else ""
            return bool(await _EXCHANGE.call(session, key, str(seen), given, self._ttl_ms))

        return await self._journal.steps(exchange)

    async def _attach(self, ask: Ask, earlier: Claim) -> Opened | None:
        """None: there is no such generation."""
        looks = round(_RECORD_WAIT_S / _LOOK_S)
        for look in range(looks):
            try:
                known = await self._locator.known(earlier.generation, ask.request.tenant)
            except GenerationNotFound:
                if look + 1 < looks:
                    await asyncio.sleep(_LOOK_S)
                continue
            return self._opened(
                ask, earlier.generation, known.worker, known.place, known.durability, durable=known.durable
            )
        return None

    def _opened(
        self,
        ask: Ask,
        generation: str,
        worker: str,
        place: Place | None,
        durability: common_pb2.Durability.ValueType,
        *,
        durable: bool,
    ) -> Opened:
        return led_to(
            self._locator,
            ask,
            generation,
            route="home" if worker else "cache",
            worker=worker,
            place=place,
            durability=durability,
            durable=durable,
        )
