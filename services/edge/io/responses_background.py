"""Background responses are read to their end by some edge, whichever edges come and go.

    sw:openai-background   sorted set   0197… → Unix ms until which an edge reads it

The worker needs no reader for them. But the channel expires some minutes after the end, and by then somebody must have kept the
outcome. So the edge that reads one says so every few seconds, and one that nobody has claimed any more is read by whoever
sees that first. Two that do it at once read the same and keep the same.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from services.edge.io.responses_desk import ResponsesDesk
from services.edge.io.responses_store import CLAIM_S, ResponseStore
from streamway.errors import GenerationNotFound, StoreUnavailable, StreamwayError
from streamway.runtime.clock import Clock

_log = structlog.get_logger("edge")

_EVERY_S: Final = 5.0
_MOST_A_ROUND: Final = 50


class BackgroundResponses:
    """One for the process."""

    def __init__(self, responses: ResponsesDesk, store: ResponseStore, clock: Clock) -> None:
        self._responses = responses
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        """Claims and adopts until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                await self._round()
            except StoreUnavailable:
                # What nobody can claim, nobody can take away either.
                continue

    async def _round(self) -> None:
        until = self._clock.unix() + CLAIM_S
        await self._store.claim(self._responses.held, until)
        if self._responses.draining:
            return
        for generation in await self._store.unclaimed(self._clock.unix(), _MOST_A_ROUND):
            if await self._store.take(generation, until):
                await self._adopt(generation)

    async def _adopt(self, generation: str) -> None:
        try:
            tenant = await self._store.owner(generation)
            stored = await self._store.read(generation, tenant)
            if stored.outcome is None:
                self._responses.adopt(stored, tenant)
                _log.info("response_adopted", generation=generation)
                return
        except GenerationNotFound:
            pass
        except StreamwayError as problem:
            _log.warning("response_not_adopted", generation=generation, problem=problem.name)
            return
        await self._store.release(generation)
