"""What the semantic level learns of tenants, saved in the store and heard from other caches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from services.cache.core.records import Change, Damaged
from services.cache.core.semantic.saved import adopt_standing, pack_standing
from services.cache.core.semantic.standing import Standing
from services.cache.io.keeper import Keeper
from services.cache.io.ledgers import LIVES_MS, Ledgers
from services.cache.io.likeness import Likeness
from services.cache.io.shelf import Shelf
from streamway.runtime.clock import Clock
from streamway.valkey.session import LinkLost, StoreRefused

_log = structlog.get_logger("cache")

_ROUND_S: Final = 0.5
# Comparisons are worth a moment's loss; that an answer was wrong is not.
_ROUNDS_BETWEEN: Final = 30


class Lessons:
    """Saves each tenant of whom something was learned, and its ledger, once in fifteen seconds; after a wrong answer at once.

    `likeness` gives the semantic level, None without one. The last one that saves is right: routers send a tenant to one cache.
    """

    def __init__(
        self, likeness: Callable[[], Likeness | None], ledgers: Ledgers, shelf: Shelf, keeper: Keeper, clock: Clock
    ) -> None:
        self._likeness = likeness
        self._ledgers = ledgers
        self._shelf = shelf
        self._keeper = keeper
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        rounds = 0
        while True:
            await asyncio.sleep(_ROUND_S)
            rounds += 1
            await self.save(all_=rounds % _ROUNDS_BETWEEN == 0)

    async def save(self, *, all_: bool) -> None:
        """Saves what is urgent, or all. What cannot be saved is tried again."""
        likeness = self._likeness()
        with contextlib.suppress(LinkLost, StoreRefused):
            for tenant, standing in likeness.standings.unsaved() if likeness is not None else ():
                if likeness is not None and (all_ or standing.urgent):
                    await self._save(tenant, standing, likeness.encoding.name)
            if all_:
                for tenant in await self._ledgers.save():
                    self._keeper.tell(Change("learned", tenant))

    async def learned(self, tenant: str) -> None:
        """Another cache, or an earlier life, has saved what is known of a tenant. Raises LinkLost and StoreRefused."""
        await self._ledgers.read(tenant)
        likeness = self._likeness()
        if likeness is None:
            return
        value = await self._shelf.standing(tenant)
        if value is None:
            return
        standing = likeness.standings.of(tenant)
        if standing.unsaved:
            return
        try:
            adopt_standing(standing, value, likeness.encoding.name)
        except Damaged as problem:
            _log.warning("cache_standing_damaged", problem=str(problem))

    def wrong(self, change: Change) -> None:
        """Another cache has found a wrong answer."""
        likeness = self._likeness()
        if likeness is not None:
            likeness.heard(change)

    async def _save(self, tenant: str, standing: Standing, encoder: str) -> None:
        value = pack_standing(standing, encoder)
        standing.unsaved = standing.urgent = False
        try:
            await self._shelf.put_standing(tenant, value, int(self._clock.unix() * 1000), LIVES_MS)
        except (LinkLost, StoreRefused):
            standing.unsaved = standing.urgent = True
            raise
        self._keeper.tell(Change("learned", tenant))
