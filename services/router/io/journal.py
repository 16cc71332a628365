"""The router's side of the store's journal: channels are opened here, before anything is promised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from services.router.core import events as made
from streamway.errors import StoreUnavailable
from streamway.following import Record, read_record
from streamway.journal import Kind, accept, read_tail
from streamway.journal.accepting import Accepting
from streamway.journal.entries import Tail
from streamway.journal.overtaking import overtake
from streamway.lanes import NewTask, commands_of
from streamway.lanes.writer import RECORD_TTL_MS
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_epoch, new_secret_id
from streamway.runtime.listening import listening
from streamway.telemetry.context import recorded
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import LinkLost, Reply, Session, StoreRefused

T = TypeVar("T")

# Seconds without any answer after which new work does not wait for the store any more.
_AWAY_AFTER_S: Final = 1.0


class Known(NamedTuple):
    """What the store has of a generation. `tail` None: there is no channel."""

    record: Record
    tail: Tail | None

    @property
    def ended(self) -> bool:
        """Its end is written."""
        return self.record.ended or (self.tail is not None and self.tail.entry.kind is Kind.END)

    @property
    def epoch(self) -> int:
        """Of the engine call that writes, or wrote last."""
        return self.tail.entry.epoch if self.tail is not None else 0

    @property
    def writer(self) -> str:
        """The worker of that call; empty before any."""
        return self.tail.begin.worker if self.tail is not None and self.tail.begin is not None else ""


class TaskInDoubt(Exception):
    """A task was sent into its lane, and no answer came: it may be there."""


class Journal:
    """Opens channels, gives tasks and looks at both.

    Every method raises StoreUnavailable after `timeout_s`, or at once when the store is away.
    """

    def __init__(self, link: Link, clock: Clock, timeout_s: float, live_ttl_ms: int, finished_ttl_ms: int) -> None:
        self.link = link
        self._clock = clock
        self._timeout_s = timeout_s
        self._live_ttl_ms = live_ttl_ms
        self.finished_ttl_ms = finished_ttl_ms

    @property
    def away(self) -> bool:
        """The store can't be reached, or has been silent for a second."""
        return self.link.current is None or self.link.quiet_s > _AWAY_AFTER_S

    async def give(self, task: NewTask, accepted: common_pb2.Event | None) -> bool:
        """Opens the channel with `accepted` (None: no channel), then writes the record and the task copy, all on one connection.

        False: the channel was there, and nothing was written. What many give in one tick shares its writes. Raises
        StoreUnavailable where nothing is in a lane, and TaskInDoubt where something may be.
        """
        entries = made.entries_of([accepted]) if accepted is not None else []
        generation = task.request.generation
        giving = Accepting(generation, entries, self._live_ttl_ms, keys.generation(generation), commands_of(task))
        try:
            return await self.steps(giving, patient=lambda: giving.sent and giving.repeatable)
        except StoreUnavailable:
            if giving.sent:
                raise TaskInDoubt from None
            raise

    async def keep(self, request: common_pb2.GenerationRequest, answer: Sequence[common_pb2.Event]) -> None:
        """Writes an answer that is complete already, and its record."""
        entries = made.entries_of(answer)
        fields: list[str | bytes | int] = [
            *("state", "finished", "worker", "", "tenant", request.tenant, "session", request.session),
            *("model", request.model, "durability", request.durability),
            *("created_ms", int(self._clock.unix() * 1000)),
            *(("trace", request.traceparent) if recorded(request.traceparent) else ()),
        ]

        async def write(session: Session) -> None:
            key = keys.generation(request.generation)
            session.send(("HSET", key, *fields), _ignore)
            session.send(("PEXPIRE", key, RECORD_TTL_MS), _ignore)
            await accept(session, request.generation, entries, self.finished_ttl_ms)

        await self.steps(write)

    async def overtake(self, generation: str, by: str, told_from: Callable[[int], Sequence[common_pb2.Event]]) -> bool:
        """Writes an answer into the channel of what a worker has been given; see `streamway.journal.overtaking`."""
        ref = new_secret_id()

        async def write(session: Session) -> bool:
            written = await overtake(session, generation, ref, by, new_epoch, told_from, self.finished_ttl_ms)
            if written:
                session.send(("HSET", keys.generation(generation), "state", "finished"), _ignore)
            return written

        return await self.steps(write)

    async def look(self, generation: str) -> Known | None:
        """None where there is no record."""

        async def read(session: Session) -> Known | None:
            record = await read_record(session, generation)
            return Known(record, await read_tail(session, generation)) if record is not None else None

        return await self.steps(read)

    async def steps(self, work: Callable[[Session], Awaitable[T]], patient: Callable[[], bool] = lambda: False) -> T:
        """Does something on one connection, and again from the start when that broke. `patient`: it waits for the next one."""
        if self.away:
            raise StoreUnavailable
        try:
            # A burst that keeps this loop busy must not be taken for a store that is silent.
            async with listening(self._timeout_s):
                while True:
                    session = await self.link.session()
                    try:
                        return await work(session)
                    except LinkLost:
                        if self.link.current is None and not patient():
                            raise
        except (TimeoutError, LinkLost, StoreRefused):
            raise StoreUnavailable from None


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""
