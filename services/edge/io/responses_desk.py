"""Stored responses as they are read: from their outcome, from a reading that runs here, or by a new one.

A background response has no client that waits for it. The edge that began it, and each that is asked for it, reads it to its end
and keeps the outcome; where they all are gone it goes on, and another edge adopts it (`responses_background.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from services.edge.core.responses_request import Echo
from services.edge.core.responses_state import ResponseState
from services.edge.io.desk import Desk, Generation
from services.edge.io.responses_reader import NOTHING, ResponseReader
from services.edge.io.responses_store import ResponseStore, StoredResponse
from streamway.errors import EventsExpired, GenerationNotFound, StoreUnavailable
from streamway.journal import START
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2

SURFACE: Final = "responses"
# How long an answer that was just cancelled may take to say so, and one that is read to reach its newest event.
_SETTLE_S: Final = 5.0
_FIRST_EVENT_S: Final = 1.0
# Nobody can read it any more.
_NO_MORE: Final = (EventsExpired, GenerationNotFound)


@dataclass(frozen=True, slots=True)
class Reading:
    """A response that is being read here. `resumed`: it was begun earlier. `restore_id`: of the connection it belongs to."""

    generation: Generation
    reader: ResponseReader
    resumed: bool = False
    restore_id: str = ""


class ResponsesDesk:
    """Begins responses, reads them, and keeps background ones read. One for the process."""

    def __init__(self, desk: Desk, store: ResponseStore, scope: TaskScope) -> None:
        self._desk = desk
        self._store = store
        self._scope = scope
        self._kept: dict[str, Reading] = {}
        # Background responses that are read here, by a client too.
        self.held: set[str] = set()

    def __len__(self) -> int:
        """Background responses that are read here."""
        return len(self._kept)

    @property
    def draining(self) -> bool:
        """The process stops."""
        return self._desk.draining

    def open(self, request: common_pb2.GenerationRequest, echo: Echo, *, streaming: bool) -> Reading:
        """Begins a response. Raises GoingAway."""
        state = ResponseState(request.generation, echo)
        reader = ResponseReader(state, -1 if streaming else NOTHING, self._ended)
        if echo.background:
            self._hold(reader)
        return Reading(self._desk.open(request, reader, SURFACE), reader)

    def keep(self, reading: Reading) -> None:
        """Reads it to its end, whoever else does."""
        id_ = reading.reader.state.generation
        if reading.generation.ended or id_ in self._kept:
            reading.generation.leave()
            return
        reading.reader.read_on_quietly()
        reading.generation.go_on()
        self._kept[id_] = reading
        reading.reader.done.add_done_callback(lambda _: self._kept.pop(id_, None))
        self._hold(reading.reader)

    def adopt(self, stored: StoredResponse, tenant: str) -> None:
        """Reads to its end a background response that no edge reads. Raises GoingAway."""
        if stored.generation not in self._kept:
            self.keep(self.resume(stored, tenant, NOTHING))

    def resume(self, stored: StoredResponse, tenant: str, after: int) -> Reading:
        """Reads a response from its beginning and writes what comes after a number. Raises GoingAway."""
        state = ResponseState(stored.generation, stored.echo)
        reader = ResponseReader(state, after, self._ended)
        return Reading(self._desk.resume(stored.generation, tenant, START, reader, SURFACE), reader, resumed=True)

    async def so_far(self, stored: StoredResponse, tenant: str) -> ResponseState:
        """The response with all that there is of it. Raises EventsExpired where nothing is left of it."""
        if stored.outcome is not None:
            return ResponseState.ended_as(stored.generation, stored.echo, stored.outcome)
        kept = self._kept.get(stored.generation)
        if kept is not None:
            return kept.reader.state
        return await self._read(stored, tenant, to_the_end=False)

    async def cancel(self, stored: StoredResponse, tenant: str) -> ResponseState:
        """Stops a response and waits for its end; one that has ended stays as it is. Raises RouterUnavailable."""
        if stored.outcome is not None:
            return ResponseState.ended_as(stored.generation, stored.echo, stored.outcome)
        # Without a record the generation has long ended.
        with contextlib.suppress(GenerationNotFound):
            await self._desk.cancel(stored.generation, tenant)
        return await self._read(stored, tenant, to_the_end=True)

    async def _read(self, stored: StoredResponse, tenant: str, *, to_the_end: bool) -> ResponseState:
        tail = await self._store.tail(stored.generation)
        reading = self.resume(stored, tenant, NOTHING)
        reader = reading.reader
        try:
            reader.reach(tail.position if tail is not None else 1)
            waited = reader.done if to_the_end else reader.reached
            limit_s = _SETTLE_S if tail is not None or to_the_end else _FIRST_EVENT_S
            await asyncio.wait({waited}, timeout=limit_s)
            if reader.failed is not None and not reader.state.ended:
                raise reader.failed
            return reader.state
        finally:
            if stored.echo.background and not reader.state.ended and not to_the_end:
                self.keep(reading)
            else:
                reading.generation.leave()

    def _hold(self, reader: ResponseReader) -> None:
        id_ = reader.state.generation
        self.held.add(id_)

        def over(_: object) -> None:
            self.held.discard(id_)
            if isinstance(reader.failed, _NO_MORE) and not reader.state.ended:
                self._scope.spawn(self._release(id_), "response-release")

        reader.done.add_done_callback(over)

    async def _release(self, generation: str) -> None:
        # Where the store is away it is adopted once more, for nothing.
        with contextlib.suppress(StoreUnavailable):
            await self._store.release(generation)

    def _ended(self, state: ResponseState) -> None:
        if state.echo.store:
            self._scope.spawn(self._store.end(state.generation, state.outcome), "response-outcome")
