"""The same generation asked for again while it is in flight here: its edge lost the stream before it heard of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from services.router.interfaces import Ask, Opened, Opener
from services.router.io.books import Booked, Books
from services.router.io.leading import led_to
from services.router.io.locating import Locator
from streamway.errors import DuplicateId, GenerationNotFound, StoreUnavailable
from streamway.following import Place


@dataclass(slots=True)
class _Deciding:
    ask: Ask
    decided: asyncio.Event = field(default_factory=asyncio.Event)


class Repeating:
    """An opener that leads the same request of the same tenant to what runs already, and lets `inner` begin the others.

    While the first one is being decided the second waits for that. Another request under a live id is a DuplicateId.
    """

    def __init__(self, inner: Opener, books: Books, locator: Locator) -> None:
        self._inner = inner
        self._books = books
        self._locator = locator
        self._deciding: dict[str, _Deciding] = {}

    async def open(self, ask: Ask) -> Opened:
        """Raises DuplicateId, and what `inner` raises."""
        generation, tenant = ask.request.generation, ask.request.tenant
        while (first := self._deciding.get(generation)) is not None:
            if (first.ask.request.tenant, first.ask.digest) != (tenant, ask.digest):
                raise DuplicateId(generation)
            # Whether the stream that broke is known to be broken yet does not matter.
            first.ask.repeated = True
            await first.decided.wait()
        booked = self._books.entry(generation)
        if booked is not None:
            if (booked.tenant, booked.digest) != (tenant, ask.digest):
                raise DuplicateId(generation)
            return await self._attach(ask, booked)
        mine = self._deciding[generation] = _Deciding(ask)
        try:
            return await self._inner.open(ask)
        finally:
            del self._deciding[generation]
            mine.decided.set()

    async def _attach(self, ask: Ask, booked: Booked) -> Opened:
        generation = ask.request.generation
        place: Place | None = booked.place
        durability = booked.durability
        try:
            known = await self._locator.known(generation, booked.tenant)
        except (GenerationNotFound, StoreUnavailable):
            worker, durable = booked.place.worker, booked.durable
        else:
            # Without a channel an answer that has just ended is in its worker's memory.
            place = known.place if known.durable else known.place or place
            worker, durable, durability = known.worker, known.durable, known.durability
        return led_to(
            self._locator,
            ask,
            generation,
            route="home",
            worker=worker,
            place=place,
            durability=durability,
            durable=durable,
        )
