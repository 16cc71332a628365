"""The kept contexts: in memory what was used lately, in the store all of them, and what becomes of a turn that has ended.

    begin   in the store: the turn runs, with its messages        nobody else's turn of this context begins
    end     finished: messages and answer are added               failed, cancelled: it was never there
            the answer is read from the response channel, by whoever comes first: this router when it hears of the end, any router
            that is asked for the next turn, or one that looks after turns whose router is gone

So a turn needs no router to live until its end, and none is ever left out of a context: where its answer cannot be had any more
the context is deleted, and the client is told to send everything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from services.router.core import context_codec as codec
from services.router.core.context_codec import Damaged
from services.router.core.context_table import ContextTable, Name
from services.router.core.conversation import Sent
from services.router.io.context_dictionaries import ContextDictionaries
from services.router.io.context_ends import ContextEnds
from services.router.io.context_store import Begun, ContextStore, Turn
from services.router.io.journal import Journal
from services.router.metrics import RouterMetrics
from streamway.errors import ContextBusy, ContextNotFound, EventsExpired, StoreUnavailable, TooLarge, from_status
from streamway.runtime.clock import Clock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2

_log = structlog.get_logger("router")
_LOOK_S: Final = 0.05
_SWEEP_S: Final = 30.0
_AT_ONCE: Final = 1_000
# The channel may have the end a little later than the worker says it, while the store is slow.
_PAUSES_S: Final = (0.0, 0.1, 0.3, 1.0, 3.0)
LIMIT_SETTING: Final = "STREAMWAY_ROUTER_CONTEXT_LIMIT_BYTES"


class Contexts:
    """See the module. Is told of the ends of generations as a `Charges`.

    `limit_bytes`: how long a conversation may be before its next turn, `wait_s` how long a turn waits for the end of the one
    before it.
    """

    def __init__(
        self,
        store: ContextStore,
        table: ContextTable,
        dictionaries: ContextDictionaries,
        journal: Journal,
        scope: TaskScope,
        clock: Clock,
        metrics: RouterMetrics,
        *,
        limit_bytes: int,
        wait_s: float,
    ) -> None:
        self._store = store
        self._table = table
        self._dictionaries = dictionaries
        self._ends = ContextEnds(store, table, dictionaries, journal, clock, metrics, limit_bytes)
        self._scope = scope
        self._clock = clock
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        self._wait_s = wait_s
        # Generations that run, by which the context cannot be given up.
        self._leases: dict[str, Turn] = {}

    async def begin(self, turn: Turn, sent: Sent, *, start: bool) -> tuple[str, bytes]:
        """A turn begins. Gives its state ("begun", "again" or "done") and the text to put in front of it.

        Raises ContextNotFound, ContextBusy, TooLarge, StoreUnavailable.
        """
        if len(sent.text) > self._limit_bytes:
            raise TooLarge("the conversation", self._limit_bytes, LIMIT_SETTING)
        begun = await self._begin(turn, _packed(sent, start=start), start=start)
        if begun.state == "none":
            self._metrics.context_reads.labels("none").inc()
            raise ContextNotFound(turn.id)
        if begun.state == "done" or start:
            return begun.state, b""
        try:
            text = await self._text(turn.name, begun)
        except Damaged as problem:
            self._metrics.context_reads.labels("damaged").inc()
            _log.warning("context_damaged", problem=str(problem))
            self._table.drop(turn.name)
            await self._store.discard(turn.name, turn.generation)
            raise ContextNotFound(turn.id, "what was kept of it is damaged") from None
        if len(text) + len(sent.text) > self._limit_bytes:
            self.give_up(turn)
            raise TooLarge("the kept conversation with this turn", self._limit_bytes, LIMIT_SETTING)
        return begun.state, text

    def lease(self, turn: Turn) -> None:
        """The turn runs: its context stays in memory, and its end is waited for."""
        if turn.generation not in self._leases:
            self._leases[turn.generation] = turn
            self._table.lease(turn.name)

    def give_up(self, turn: Turn) -> None:
        """The turn was refused, after it had begun or may have. Returns at once."""
        self._release(turn.generation)
        self._scope.spawn(self._roll_back(turn.name, turn.generation, turn.by), "context-refused")

    def answered(self, turn: Turn) -> None:
        """Its answer was there already, and is complete in its channel. Returns at once."""
        self._release(turn.generation)
        self._scope.spawn(self._note(turn), "context-answered")

    def ended(self, generation: str, event: common_pb2.Event) -> None:
        """It has ended with this event. One that is no turn of a context is ignored."""
        turn = self._leases.get(generation)
        if turn is None:
            return
        if event.HasField("error") and isinstance(from_status(event.error.status), EventsExpired):
            self.abandon(generation)
        else:
            # Which end it was is what the channel says, to whoever asks.
            self._scope.spawn(self._note(turn), "context-ended")

    def overtaken(self, generation: str) -> None:
        """The cache answered it after its dispatch: the channel has that answer."""
        turn = self._leases.get(generation)
        if turn is not None:
            self._scope.spawn(self._note(turn), "context-overtaken")

    def abandon(self, generation: str) -> None:
        """Its end will not be seen here: whoever wants the next turn, or looks after it, reads it in its channel."""
        self._release(generation)

    async def delete(self, name: Name) -> bool:
        """False: nothing was kept. A turn that runs goes on, and is not added to anything."""
        self._table.drop(name)
        found = await self._store.delete(name)
        self._tell()
        return found

    async def run(self) -> None:
        """Gives up what is idle here, and looks after turns whose router is gone, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Once."""
        self._table.sweep(self._clock.monotonic())
        self._tell()
        try:
            for name in await self._store.overdue(_AT_ONCE):
                await self._ends.settle(name)
            await self._dictionaries.look_after()
        except StoreUnavailable:
            _log.info("contexts_not_looked_after")

    # --- Beginning

    async def _begin(self, turn: Turn, new: bytes, *, start: bool) -> Begun:
        until = self._clock.monotonic() + self._wait_s
        while True:
            try:
                begun = await self._store.begin(turn, start=start, new=new, known=self._table.version(turn.name))
            except StoreUnavailable:
                self.give_up(turn)
                raise
            if begun.state != "busy":
                return begun
            if await self._ends.settle(turn.name):
                continue
            if self._clock.monotonic() >= until:
                self._metrics.context_turns.labels("busy").inc()
                raise ContextBusy(turn.id, begun.other)
            await asyncio.sleep(_LOOK_S)

    async def _text(self, name: Name, begun: Begun) -> bytes:
        """What is kept. Raises Damaged."""
        now = self._clock.monotonic()
        if begun.segments is not None:
            known = await self._dictionaries.needed(name.tenant, begun.segments)
            texts = codec.unpack(begun.segments, 2 * self._limit_bytes, known)
            self._table.put(name, begun.last, begun.segments, now)
            self._metrics.context_reads.labels("store").inc()
            self._tell()
            return b"".join(texts)
        segments = self._table.get(name, now) if self._table.version(name) == begun.last else None
        if segments is None:
            # Given up here while the store was asked.
            running = await self._store.running(name, "")
            if running is None or not running.segments:
                raise Damaged("it is gone")
            return await self._text(name, Begun(begun.state, running.last, running.segments))
        self._metrics.context_reads.labels("memory").inc()
        known = await self._dictionaries.needed(name.tenant, segments)
        return b"".join(codec.unpack(segments, 2 * self._limit_bytes, known))

    async def _note(self, turn: Turn) -> None:
        try:
            await self._patiently(lambda: self._ends.settle(turn.name))
        finally:
            self._release(turn.generation)
            self._tell()

    async def _roll_back(self, name: Name, generation: str, by: str) -> None:
        async def once() -> bool:
            if await self._store.roll_back(name, generation, by):
                self._metrics.context_turns.labels("dropped").inc()
            return True

        await self._patiently(once)

    async def _patiently(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Until it says True. What does not come to that is found by its record later."""
        for pause_s in _PAUSES_S:
            await asyncio.sleep(pause_s)
            with contextlib.suppress(StoreUnavailable):
                if await step():
                    return

    def _release(self, generation: str) -> None:
        turn = self._leases.pop(generation, None)
        if turn is not None:
            self._table.release(turn.name)

    def _tell(self) -> None:
        self._metrics.contexts.set(len(self._table))
        self._metrics.context_bytes.labels("raw").set(self._table.raw_bytes)
        self._metrics.context_bytes.labels("packed").set(self._table.used_bytes)


def _packed(sent: Sent, *, start: bool) -> bytes:
    """A turn's messages as they are kept until its end."""
    if not start or not sent.opening:
        return codec.pack(sent.text)
    opening = codec.pack(sent.opening, opening=True)
    return opening + codec.pack(sent.turns, sent.opening) if sent.turns else opening
