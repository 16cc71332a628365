"""What becomes of a turn of a kept context that has ended: its end is read in its response channel, and noted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from google.protobuf.message import DecodeError

from services.router.core import context_codec as codec
from services.router.core.context_codec import Damaged
from services.router.core.context_table import ContextTable, Name
from services.router.core.conversation import answer_of
from services.router.io.context_dictionaries import ContextDictionaries
from services.router.io.context_store import ContextStore, Running
from services.router.io.journal import Journal
from services.router.metrics import RouterMetrics
from streamway.journal import START, Kind, read_channel
from streamway.journal.entries import Entry, decode_events
from streamway.journal.merge import Continues
from streamway.lanes.writer import RECORD_TTL_MS
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.valkey.session import Session

_log = structlog.get_logger("router")
# Between its beginning and its record a turn is being decided; one that has no record after this long was refused or died.
DECIDED_WITHIN_S: Final = 30.0


class ContextEnds:
    """Adds the turns that have finished and takes back the others. `limit_bytes`: see `Contexts`."""

    def __init__(
        self,
        store: ContextStore,
        table: ContextTable,
        dictionaries: ContextDictionaries,
        journal: Journal,
        clock: Clock,
        metrics: RouterMetrics,
        limit_bytes: int,
    ) -> None:
        self._store = store
        self._table = table
        self._dictionaries = dictionaries
        self._journal = journal
        self._clock = clock
        self._metrics = metrics
        self._most_bytes = 2 * limit_bytes

    async def settle(self, name: Name) -> bool:
        """Notes the end of the turn that runs. False: it has not ended. Raises StoreUnavailable."""
        running = await self._store.running(name, self._table.version(name))
        if running is None:
            await self._store.settled(name)
            return True
        end = await self._end(running, name.tenant)
        if end == "runs":
            return False
        if end == "nothing":
            await self._store.roll_back(name, running.generation)
            self._metrics.context_turns.labels("dropped").inc()
        elif isinstance(end, str):
            await self._lost(name, running.generation, "its answer is no longer kept")
        else:
            await self._add(name, running, answer_of(end))
        return True

    async def _end(self, running: Running, tenant: str) -> list[common_pb2.Event] | str:
        """The events of a turn that has finished; else "runs", "nothing" (it failed, or never began) or "lost"."""
        known = await self._journal.look(running.generation)
        if known is None:
            if running.age_ms < DECIDED_WITHIN_S * 1000:
                return "runs"
            return "nothing" if running.age_ms < RECORD_TTL_MS else "lost"
        if known.record.tenant != tenant or known.record.state in ("failed", "cancelled"):
            return "nothing"
        if known.tail is None:
            return "lost" if known.record.ended else "runs"
        if known.tail.entry.kind is not Kind.END:
            return "runs"
        try:
            entries = await self._journal.steps(lambda session: _whole(session, running.generation))
            events = [event for entry in entries or () for event in decode_events(entry)]
        except (ValueError, DecodeError):
            return "lost"
        if not entries:
            return "lost"
        return events if events and events[-1].HasField("finished") else "nothing"

    async def _add(self, name: Name, running: Running, answer: bytes) -> None:
        if not running.start and running.segments is None and not self._has(name, running.last):
            # Given up here while the store was asked, or somebody has noted the end meanwhile.
            again = await self._store.running(name, "")
            if again is None or again.generation != running.generation:
                return
            running = again
        try:
            how, segment_texts, before = await self._grown(name, running, answer)
        except Damaged as problem:
            await self._lost(name, running.generation, str(problem))
            return
        dictionary = await self._dictionaries.latest(name.tenant)
        segments = [
            codec.pack(text, front, opening=opening, dictionary=dictionary) for text, front, opening in segment_texts
        ]
        if not await self._store.commit(name, running.generation, running.last, how, segments):
            return
        self._metrics.context_turns.labels("kept").inc()
        now = self._clock.monotonic()
        if how == "start":
            self._table.put(name, running.generation, segments, now)
        elif not self._table.extend(name, running.last, running.generation, segments[0], now, anew=how == "anew"):
            kept = before[:-1] if how == "anew" else before
            self._table.put(name, running.generation, [*kept, *segments], now)

    def _has(self, name: Name, last: str) -> bool:
        return self._table.version(name) == last

    async def _grown(
        self, name: Name, running: Running, answer: bytes
    ) -> tuple[str, list[tuple[bytes, bytes, bool]], list[bytes]]:
        """How the turn is added; text, dictionary and kind of each new segment; the segments before it. Raises Damaged."""
        new = codec.split(running.new)
        new_texts = codec.unpack(new, self._most_bytes)
        if running.start:
            opening = new_texts[0] if codec.is_opening(new[0]) else b""
            turns = b"".join(new_texts).removeprefix(opening) + answer
            made = [(opening, b"", True)] if opening else []
            return "start", [*made, (turns, opening, False)], []
        segments = running.segments
        if segments is None and self._has(name, running.last):
            segments = self._table.get(name, self._clock.monotonic())
        if not segments:
            raise Damaged("what was kept before this turn is gone")
        known = await self._dictionaries.needed(name.tenant, segments)
        texts = codec.unpack(segments, self._most_bytes, known)
        anew = not codec.is_opening(segments[-1]) and len(texts[-1]) < codec.OPEN_BYTES
        front = b"".join(texts[:-1] if anew else texts)
        text = (texts[-1] if anew else b"") + b"".join(new_texts) + answer
        if len(front) + len(text) > self._most_bytes:
            raise Damaged("it has grown beyond twice what it may")
        return "anew" if anew else "add", [(text, front, False)], segments

    async def _lost(self, name: Name, generation: str, why: str) -> None:
        """A turn is missing, so nothing may go on from what is kept."""
        if await self._store.discard(name, generation):
            _log.warning("context_lost", generation=generation, why=why)
            self._metrics.context_turns.labels("lost").inc()
            self._table.drop(name)


async def _whole(session: Session, generation: str) -> Sequence[Entry] | None:
    """All entries of a channel that has its end; None where its beginning is gone."""
    entries: list[Entry] = []
    cursor, line = START, None
    while True:
        read = await read_channel(session, generation, cursor, line)
        if not isinstance(read.outcome, Continues) or read.oldest != 1:
            return None
        entries += read.entries
        if not read.more:
            return entries
        cursor, line = read.tail, read.outcome.line
