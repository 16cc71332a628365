"""How a generation with a channel leaves this worker without an end of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Set
from typing import Final

from services.inference_adapter.io.delivery import Delivery
from services.inference_adapter.io.journaling import Journaling, place_of
from streamway.errors import Cancelled, StreamwayError
from streamway.journal import Writing
from streamway.lanes import TakenTask

# How long readers wait for a silent store before they are told of an end, or of a move, without it.
PATIENCE_S: Final = 2.0


class Leaving:
    """Settles or passes on the task copies of one call, then sends its readers away.

    A cancel that comes while the task is on its way is carried out behind it, in the channel: whoever has it then stops.
    """

    __slots__ = ("_cancelled", "_delivery", "_journaling", "_model", "_task")

    def __init__(self, journaling: Journaling, delivery: Delivery, task: TakenTask, model: str) -> None:
        self._journaling = journaling
        self._delivery = delivery
        self._task = task
        self._model = model
        self._cancelled: Cancelled | None = None

    def cancel(self, error: StreamwayError) -> None:
        """Nobody wants it any more; other reasons to stop are the next worker's business."""
        if isinstance(error, Cancelled):
            self._cancelled = error

    def by_passing_on(self, *, degraded: bool = False) -> Coroutine[object, object, None]:
        """For a task that has not begun here."""
        return self._journaling.pass_on(self._task, self._model, degraded=degraded)

    async def by_settling(
        self, writing: Writing | None, *, mine: bool, planned: bool = False, but: Set[str] = frozenset()
    ) -> None:
        """All copies of this call; those beside the last are of a store that lost one and found it again. `but`: workers that
        must not get it."""
        places = writing.channel.places if writing is not None else [place_of(self._task)]
        for place in reversed(places):
            await self._journaling.settle(self._task.copy, place, self._model, mine=mine, planned=planned, but=but)

    async def run(self, way: Coroutine[object, object, None], error: StreamwayError) -> None:
        """Readers are told `error` when it is done, or when that takes long. Until then they get what is confirmed."""
        done = self._journaling.spawn(way, "settle")
        await asyncio.wait({done}, timeout=PATIENCE_S)
        self._delivery.tell(error, forget=True)
        await asyncio.wait({done})
        if self._cancelled is not None:
            await self._journaling.end(self._task.copy.generation, self._cancelled)
