"""Idempotency keys: the same request again leads to the generation that the first one began."""

from __future__ import annotations

import asyncio
from typing import Final

from services.router.core import events
from services.router.core.idempotency import Claim, claim_of, digest_of_key
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.journal import Journal
from services.router.io.locating import Locator
from streamway.errors import GenerationNotFound, IdempotencyConflict, StreamwayError
from streamway.journal.functions import Script
from streamway.valkey import keys
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

    A key promises that nothing runs twice. Where the store is away that can't be promised, so such a request is refused.
    """

    def __init__(self, inner: Opener, journal: Journal, locator: Locator, ttl_s: float) -> None:
        self._inner = inner
        self._journal = journal
        self._locator = locator
        self._ttl_ms = int(ttl_s * 1000)

    async def open(self, ask: Ask) -> Opened:
        """Raises IdempotencyConflict when the key began another request, StoreUnavailable, and what `inner` raises."""
        request = ask.request
        if not request.idempotency_key:
            return await self._inner.open(ask)
        key = keys.idempotency(request.tenant, digest_of_key(request.idempotency_key))
        mine = claim_of(request)
        earlier = await self._claim(key, mine)
        if earlier is None or earlier.generation == mine.generation:
            return await self._begin(ask, key, mine)
        if earlier.digest != mine.digest:
            raise IdempotencyConflict(earlier.generation)
        attached = await self._attach(ask, earlier)
        if attached is not None:
            return attached
        # Whoever claimed it died before anything ran.
        if await self._exchange(key, earlier, mine):
            return await self._begin(ask, key, mine)
        return await self.open(ask)

    async def _begin(self, ask: Ask, key: str, mine: Claim) -> Opened:
        try:
            return await self._inner.open(ask)
        except StreamwayError:
            # Nothing runs, so the key is free again.
            await self._exchange(key, mine, None)
            raise

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
            told = events.accepted(
                ask.request,
                route="cache" if not known.worker else "home",
                cache="off",
                worker=known.worker,
                source=self._locator.source_of(known.place),
                durability=known.durability,
                attached_to=earlier.generation,
            )
            return Opened([told], known.place, earlier.generation, durable=known.durable)
        return None
