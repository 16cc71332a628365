"""The processes of the model. What they decide is the library's code; here is only what a service would add around it."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from streamway.journal import signals as s
from streamway.journal.accepting import Accepting
from streamway.journal.ahead import Ahead
from streamway.journal.beginning import begin_call
from streamway.journal.begun import Begun
from streamway.journal.channel import Channel, State
from streamway.journal.cursor import START, Cursor
from streamway.journal.entries import Entry, Kind, decode_events, encode_events
from streamway.journal.line import Line
from streamway.journal.merge import Behind, Diverged, Merger, NotRecovered, Verdict
from streamway.journal.reading import Read, read_channel
from streamway.journal.reclaimer import Reclaimer
from streamway.journal.signals import Place
from streamway.journal.writing import Writing
from streamway.lanes.task import TaskCopy
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.session import LinkLost, StoreRefused
from tests.support.journal_model.wire import Actor, ModelSession

GENERATION = "g"
LENGTH = 12  # tokens of the whole answer


@dataclass
class Build:
    """The parts of the library that run; a mutant replaces one."""

    channel: Callable[..., Channel] = Channel
    merger: Callable[..., Merger] = Merger
    reclaimer: type[Reclaimer] = Reclaimer
    begin: Callable[..., Awaitable[Any]] = begin_call
    read: Callable[..., Awaitable[Read]] = read_channel
    ahead: Callable[[], Ahead] = Ahead
    # Workers may deliver without the store, and readers write what it lacks.
    relaxed: bool = False
    random_bits: bool = True
    look_at_own: bool = True
    scripts: dict[str, str] = field(default_factory=dict)


class Dead:
    """What giving up needs."""

    async def model_of(self, generation: str) -> str:
        return "m"

    def end_payload(self, generation: str) -> bytes:
        return encode_events([common_pb2.Event(error=common_pb2.Error())])


class World:
    """What all actors of one schedule share: the draw, the readers, and what the checks want to know."""

    def __init__(self, draw: random.Random, build: Build) -> None:
        self.draw = draw
        self.build = build
        self.now = 0.0
        self.readers: list[Reader] = []
        self.lanes: list[str] = []
        self.problems: list[str] = []
        self.lost_writes = False
        self.promised = False
        self.excused = False
        self.calls_made = 0
        self.epochs: set[int] = set()
        self.timers: list[Callable[[], None]] = []
        self._refs = 0

    @property
    def may_differ(self) -> bool:
        """A reader may have had what the channel has not."""
        return self.lost_writes or self.build.relaxed

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def new_ref(self) -> str:
        self._refs += 1
        return f"r{self._refs}"

    def new_epoch(self, attempt: int) -> int:
        return attempt << 20 | (self.draw.getrandbits(20) if self.build.random_bits else 0)

    def later(self, _: float, call: Callable[[], None]) -> None:
        self.timers.append(call)


def token_text(call: int, prefix: str) -> str:
    """What the model's engine says after `prefix`: a continuation from a wrong text can be told from a right one."""
    return f"{call}.{zlib.crc32(prefix.encode()) & 0xFFFF:x} "


class Router(Actor):
    """Accepts the generation; asks again until both steps were answered on one connection."""

    def __init__(self, store: Any, name: str, world: World) -> None:
        super().__init__(store, name)
        self.world = world

    async def accept(self) -> None:
        accepted = common_pb2.Event(position=1, accepted=common_pb2.Accepted())
        entry = Entry(0, 1, 1, Kind.ACCEPTED, encode_events([accepted]))
        copy = TaskCopy(GENERATION, 1, self.world.new_ref())
        lane = self.world.lanes[0]
        fields = [part for pair in copy.fields().items() for part in pair]
        accepting = Accepting(GENERATION, [entry], 600_000, "", [("XADD", lane, "*", *fields)])
        while True:
            session = await self.session()
            try:
                await accepting(session)
            except LinkLost:
                continue
            self.world.promised = True
            return


class Call:
    """One engine call: makes tokens, writes them, and delivers what is confirmed."""

    def __init__(self, worker: Worker, begun: Begun, session: ModelSession) -> None:
        self.worker = worker
        world = worker.world
        world.calls_made += 1
        self.number = world.calls_made
        if begun.epoch in world.epochs:
            world.problem(f"two engine calls under epoch {begun.epoch}")
        world.epochs.add(begun.epoch)
        self.events = [event for entry in (*begun.before, begun.begin) for event in decode_events(entry)]
        self.text = "".join(event.token.text for event in self.events)
        self.made = sum(event.WhichOneof("event") == "token" for event in self.events)
        self.delivered = begun.begin.last
        self.line = begun.begin.begin.line if begun.begin.begin is not None else None
        self.stopped = False
        self.over = False
        self.loose = False
        # The last position of the entry that each position lies in.
        self.entry_of: dict[int, int] = {}
        self.writing = Writing(
            world.build.channel(begun, world.now), session, _Listener(self), lambda: world.now, world.later
        )
        self._deliver(self.events[-1:], self.line)

    @property
    def can_make(self) -> bool:
        return not self.stopped and not self.over and self.events[-1].WhichOneof("event") not in {"finished", "error"}

    def make(self, tokens: int) -> None:
        """The engine says something; one flush."""
        position = self.writing.channel.position
        flush = []
        if self.made >= LENGTH:
            flush = [common_pb2.Event(position=position + 1, finished=common_pb2.Finished())]
        for _ in range(min(tokens, LENGTH - self.made)):
            position += 1
            text = token_text(self.number, self.text)
            flush.append(common_pb2.Event(position=position, token=common_pb2.Token(text=text)))
            self.text += text
            self.made += 1
        for event in flush:
            event.epoch = self.writing.channel.begun.epoch
        self.events += flush
        kind = Kind.TOKENS if flush[0].WhichOneof("event") == "token" else Kind.END
        last = flush[-1].position
        self.entry_of.update((event.position, last) for event in flush)
        self.writing.append(kind, last, encode_events(flush))
        if self.loose:
            self.deliver_all()

    @property
    def can_loosen(self) -> bool:
        return not self.stopped and not self.over and self.delivered < self.events[-1].position

    def deliver_all(self) -> None:
        """The store is silent: what it has not confirmed goes out without it."""
        self.loose = True
        events = [common_pb2.Event.FromString(event.SerializeToString()) for event in self.events]
        events = [event for event in events if event.position > self.delivered]
        for event in events:
            event.not_durable = True
            last = self.entry_of[event.position]
            event.entry_position = last if last != event.position else 0
        self._deliver(events, None)
        self.delivered = self.events[-1].position

    def confirmed(self, position: int) -> None:
        if self.stopped:
            self.worker.world.problem("a stopped call delivered")
        if self.loose:
            self.loose = position < self.events[-1].position
            return
        self._deliver([event for event in self.events if self.delivered < event.position <= position], None)
        self.delivered = max(self.delivered, position)

    def unanswered(self, position: int) -> None:
        """A schedule says itself when the store counts as silent."""

    def stopped_by(self, reason: s.StopReason) -> None:
        self.stopped = True

    def finished(self) -> None:
        self.over = True

    def _deliver(self, events: list[common_pb2.Event], line: Line | None) -> None:
        for reader in self.worker.world.readers:
            mailbox = reader.mailboxes.setdefault(self.worker.name, deque())
            mailbox.extend((event, line) for event in events)


class _Listener:
    """Between the library's port and a call, which has a field of the same name."""

    def __init__(self, call: Call) -> None:
        self.confirmed = call.confirmed
        self.unanswered = call.unanswered
        self.finished = call.finished
        self._call = call

    def stopped(self, reason: s.StopReason) -> None:
        self._call.stopped_by(reason)
        self._call.worker.settle_places(self._call.writing.channel.begun.copy, self._call.writing.channel.places)


class Worker(Actor):
    """Reads its lane, runs engine calls."""

    def __init__(self, store: Any, name: str, lane: str, world: World) -> None:
        super().__init__(store, name)
        self.world = world
        self.lane = lane
        self.calls: list[Call] = []
        self.beginning: dict[str, list[Place]] = {}
        self.settling: set[Place] = set()
        self.polling = False
        self.reclaimer = world.build.reclaimer(
            self, name, lambda copy, lane: lane, world.new_ref, world.new_epoch, Dead(), most_attempts=50
        )

    def forget(self) -> None:
        self.calls = []
        self.beginning = {}
        self.settling = set()
        self.polling = False

    def on_lost(self) -> None:
        self.polling = False
        for call in self.calls:
            call.writing.lost()

    def on_connected(self, session: ModelSession) -> None:
        for call in self.calls:
            call.writing.connected(session)
        self.spawn(self._read("0"))

    def poll(self) -> None:
        self.polling = True
        self.spawn(self._read(">"))

    def look_at_own(self) -> None:
        """A read that seemed lost may have been executed later: what it gave is pending here and known to nobody."""
        if self.world.build.look_at_own:
            self.spawn(self._read("0"))

    async def _read(self, start: str) -> None:
        session = await self.session()
        try:
            reply = await session.call(
                "XREADGROUP", "GROUP", keys.LANE_GROUP, self.name, "COUNT", 1 if start == ">" else 100, "STREAMS",
                self.lane, start,
            )  # fmt: skip
        except LinkLost:
            return
        except StoreRefused:  # the store lost the group
            await self._make_group(session)
            reply = None
        if start == ">":
            self.polling = False
        for id_, fields in reply[0][1] if reply else ():
            if fields is not None:
                copy = TaskCopy.parse(dict(zip(fields[::2], fields[1::2], strict=True)))
                self._take(copy, Place(self.lane, id_.decode()))

    async def _make_group(self, session: ModelSession) -> None:
        try:
            await session.call("XGROUP", "CREATE", self.lane, keys.LANE_GROUP, "0", "MKSTREAM")
        except (LinkLost, StoreRefused):
            return

    def _take(self, copy: TaskCopy, place: Place) -> None:
        for call in self.calls:
            if call.writing.channel.running and call.writing.channel.begun.copy.ref == copy.ref:
                call.writing.copy_seen(*place)
                return
        if copy.ref in self.beginning:
            if place not in self.beginning[copy.ref]:
                self.beginning[copy.ref].append(place)
        elif place not in self.settling:
            self.beginning[copy.ref] = [place]
            self.spawn(self._run(copy, place))

    async def _run(self, copy: TaskCopy, place: Place) -> None:
        answer = await self.world.build.begin(self, copy, place, self.name, b"", self.world.new_epoch)
        places = self.beginning.pop(copy.ref)
        if not isinstance(answer, tuple):
            self.settle_places(copy, places)
            return
        begun, session = answer
        call = Call(self, begun, session)
        self.calls.append(call)
        for extra in places:
            if extra != place:
                call.writing.copy_seen(*extra)
        if not session.alive and self.wire is not None:
            call.writing.connected(self.wire)

    def settle_places(self, copy: TaskCopy, places: list[Place]) -> None:
        for place in places:
            if place not in self.settling:
                self.settling.add(place)
                self.spawn(self._settle(copy, place))

    async def _settle(self, copy: TaskCopy, place: Place) -> None:
        await self.reclaimer.settle(copy, place)
        self.settling.discard(place)


class ReclaimerActor(Actor):
    """Sweeps lanes when the schedule says so, suspecting whom it says."""

    def __init__(self, store: Any, name: str, world: World) -> None:
        super().__init__(store, name)
        self.world = world
        self.busy = False
        self.reclaimer = world.build.reclaimer(
            self, name, self._place, world.new_ref, world.new_epoch, Dead(), most_attempts=50
        )

    def forget(self) -> None:
        self.busy = False

    def _place(self, copy: TaskCopy, lane: str) -> str:
        return self.world.draw.choice(self.world.lanes)

    def sweep(self, lane: str, gone: frozenset[str], *, owner_gone: bool) -> None:
        self.busy = True
        self.spawn(self._sweep(lane, gone, owner_gone=owner_gone))

    async def _sweep(self, lane: str, gone: frozenset[str], *, owner_gone: bool) -> None:
        with contextlib.suppress(LinkLost, StoreRefused):
            await self.reclaimer.sweep(lane, gone.__contains__, owner_gone=owner_gone)
        self.busy = False


class Reader(Actor):
    """An edge with one client. What it has shown is `text`: epoch, position and text of each event."""

    def __init__(self, store: Any, name: str, world: World) -> None:
        super().__init__(store, name)
        self.world = world
        self.merger = world.build.merger()
        self.ahead = world.build.ahead()
        # What each worker has sent on its stream, in order; streams of different workers overtake one another.
        self.mailboxes: dict[str, deque[tuple[common_pb2.Event, Line | None]]] = {}
        self.text: list[tuple[int, int, str]] = []
        self.told: list[str] = []
        self.catching_up = False
        self.wants_channel = True

    def forget(self) -> None:
        """The edge dies; the client comes back to another one with its cursor."""
        self.merger = self.world.build.merger(self.merger.cursor)
        self.ahead = self.world.build.ahead()
        self.mailboxes.clear()
        self.catching_up = False
        self.wants_channel = True

    @property
    def finished(self) -> bool:
        return bool(self.text) and self.text[-1][2] in {"finished", "error"}

    def on_lost(self) -> None:
        self.catching_up = False

    def take(self, worker: str) -> None:
        """One live event arrives."""
        event, line = self.mailboxes[worker].popleft()
        self._receive(event, line)

    def miss(self, worker: str) -> None:
        """One never does."""
        self.mailboxes[worker].popleft()

    def catch_up(self) -> None:
        self.catching_up = True
        self.spawn(self._catch_up())

    async def _catch_up(self) -> None:
        session = await self.session()
        cursor = self.merger.cursor
        try:
            read = await self.world.build.read(session, GENERATION, cursor, self.merger.line)
            if isinstance(read.outcome, Behind) and await self.ahead.write(session, GENERATION):
                read = await self.world.build.read(session, GENERATION, cursor, self.merger.line)
        except LinkLost:
            return
        self.catching_up = False
        # A judgement on where the reader stood before live events moved it is void.
        self.wants_channel = moved = self.merger.cursor != cursor
        match read.outcome:
            case _ if moved:
                pass
            case NotRecovered(oldest):
                self._tell(f"not recovered, oldest {oldest}")
            case Behind():
                if not self.world.may_differ:
                    self.world.problem("behind, though the store lost nothing")
                self.behind = True
            case Diverged() as diverged:
                self._diverge(diverged)
        for entry in read.entries:
            for event in decode_events(entry):
                self._receive(event, entry.begin.line if entry.begin is not None else None, from_channel=not moved)

    def _receive(self, event: common_pb2.Event, line: Line | None, *, from_channel: bool = False) -> None:
        verdict = self.merger.receive(event.epoch, event.first_position or event.position, event.position, line)
        if verdict is Verdict.DELIVER:
            if event.not_durable:
                self.ahead.add(event)
            self._show(event)
        elif verdict is Verdict.GAP:
            self.wants_channel = True
            if from_channel and self.merger.cursor != START:
                self.world.problem(f"a hole in the channel before {event.epoch}-{event.position}")
        elif isinstance(verdict, Diverged):
            self._diverge(verdict)

    def _show(self, event: common_pb2.Event) -> None:
        kind = event.WhichOneof("event") or ""
        if self.text and event.position <= self.text[-1][1]:
            self.world.problem(f"{self.name} saw position {event.position} twice")
        if self.finished:
            self.world.problem(f"{self.name} saw something after the end")
        self.text.append((event.epoch, event.position, event.token.text or kind))

    def _diverge(self, diverged: Diverged) -> None:
        self._tell(f"diverged at {diverged.at}")
        self.text = [row for row in self.text if row[1] <= diverged.at.position]
        self.merger.restart(diverged)
        self.wants_channel = True

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if not self.world.may_differ:
            self.world.problem(f"{self.name} was told {what}, though the store lost nothing")

    behind = False


__all__ = ["GENERATION", "Build", "Call", "Cursor", "Reader", "ReclaimerActor", "Router", "State", "Worker", "World"]
