"""Each rule of the protocol taken out by itself. The model must notice every one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from streamway.journal import functions
from streamway.journal import signals as s
from streamway.journal.ahead import Ahead
from streamway.journal.beginning import begin_call, ensure_copy, read_until
from streamway.journal.begun import Begun
from streamway.journal.channel import Channel
from streamway.journal.cursor import START, Cursor
from streamway.journal.entries import Entry, Kind, Tail, on_line
from streamway.journal.functions import BEGIN, Began
from streamway.journal.line import Line
from streamway.journal.merge import Continues, Diverged, Merger, Verdict
from streamway.journal.reading import Read, read_channel, read_tail
from streamway.journal.reclaim import Drop, Fate, Requeue, Why, decide
from streamway.journal.reclaimer import Reclaimer
from streamway.journal.signals import Place
from streamway.journal.transitions import State
from streamway.lanes.task import TaskCopy
from streamway.v1 import common_pb2
from streamway.valkey.session import LinkLost, Session, Sessions
from tests.support.journal_model.actors import Build

# --- Names


def epoch_without_random_bits() -> Build:
    """Two engine calls of one attempt share an epoch."""
    return Build(random_bits=False)


class _Renamed:
    """A session on which begin is told another ref."""

    def __init__(self, session: Session, ref: str) -> None:
        self._session = session
        self._ref = ref

    @property
    def alive(self) -> bool:
        return self._session.alive

    async def call(self, *command: Any) -> Any:
        if command[:2] == ("EVALSHA", BEGIN.sha):
            command = (*command[:6], self._ref, *command[7:])
        return await self._session.call(*command)


async def _begin_by_place(
    sessions: Sessions, copy: TaskCopy, place: Place, worker: str, payload: bytes, new_epoch: Callable[[int], int]
) -> Any:
    class Renaming:
        async def session(self) -> Any:
            self.real = await sessions.session()
            return _Renamed(self.real, place.entry)

    renaming = Renaming()
    answer = await begin_call(renaming, copy, place, worker, payload, new_epoch)
    return (answer[0], renaming.real) if isinstance(answer, tuple) else answer


class _PositionOnly(Merger):
    """A cursor is a position."""

    def receive(self, epoch: int, first: int, last: int, line: Line | None = None) -> Verdict | Diverged:
        if last <= self._position:
            return Verdict.DROP
        if first != self._position + 1:
            return Verdict.GAP
        self._epoch, self._position = epoch, last
        return Verdict.DELIVER


async def _read_by_position(
    session: Session, generation: str, cursor: Cursor = START, known: Line | None = None, limit: int = 1_000
) -> Read:
    read = await read_channel(session, generation, START, None, limit)
    return read._replace(entries=[entry for entry in read.entries if entry.last > cursor.position])


def cursor_is_a_position() -> Build:
    """After the store lost its newest second, two texts have the same position."""
    return Build(merger=_PositionOnly, read=_read_by_position)


# --- Begin


def own_pending_after_reconnect_only() -> Build:
    """A worker looks at what is pending under its name when it connects, and never again."""
    return Build(look_at_own=False)


def own_begin_is_stale() -> Build:
    """Asked again, begin does not know its own epoch, and whoever is told stale acknowledges."""
    source = BEGIN.source.replace("if epoch == ARGV[1] then", "if false then")
    return Build(scripts={BEGIN.sha: source}, reclaimer=_AnyStaleIsDone)


def begin_ignores_higher_attempts() -> Build:
    """A begin is refused by nothing but the order of ids."""
    return Build(scripts={BEGIN.sha: BEGIN.source.replace(">= tonumber(ARGV[2])", "> tonumber(ARGV[2])")})


async def _read_first(
    sessions: Sessions, copy: TaskCopy, place: Place, worker: str, payload: bytes, new_epoch: Callable[[int], int]
) -> Any:
    """What came before is read, then the old writer is fenced."""
    while True:
        session = await sessions.session()
        epoch = new_epoch(copy.attempt)
        try:
            place = await ensure_copy(session, copy, place)
            before = await read_until(session, copy.generation, Cursor(2**63, 0))
            answer = await functions.begin(
                session, copy.generation, epoch, copy.ref, worker, payload, again=False, ttl_ms=600_000
            )
            if not isinstance(answer, Began):
                return answer
            own = await read_until(session, copy.generation, Cursor(epoch, answer.start))
        except LinkLost:
            continue
        if own and own[-1].epoch == epoch:
            return Begun(copy, place, tuple(on_line(before, answer.line)), own[-1]), session


def read_then_begin() -> Build:
    """The order of fencing and reading is turned round."""
    return Build(begin=_read_first)


async def _begin_then_copy(
    sessions: Sessions, copy: TaskCopy, place: Place, worker: str, payload: bytes, new_epoch: Callable[[int], int]
) -> Any:
    """The copy is not looked for before the begin."""

    class Blind:
        """A store in which the copy always is where it was."""

        def __init__(self, session: Session) -> None:
            self._session = session

        @property
        def alive(self) -> bool:
            return self._session.alive

        async def call(self, *command: Any) -> Any:
            if command[0] == "XRANGE" and command[1] == place.lane:
                return [[b"", [b"ref", copy.ref.encode()]]]
            return await self._session.call(*command)

    class Blinded:
        async def session(self) -> Any:
            self.real = await sessions.session()
            return Blind(self.real)

    blinded = Blinded()
    answer = await begin_call(blinded, copy, place, worker, payload, new_epoch)
    return (answer[0], blinded.real) if isinstance(answer, tuple) else answer


def begin_without_copy() -> Build:
    """A begin may name a copy that the store has lost."""
    return Build(begin=_begin_then_copy)


# --- Writing


class _NoVerify(Channel):
    """After a lost connection it goes on as if all it sent had arrived."""

    __slots__ = ()

    def _verify(self, _: s.Event, now: float) -> Sequence[s.Effect]:
        self.state = State.STEADY
        self._confirmed = len(self._own)
        return self._write_rest(now)


def no_verify() -> Build:
    """Doubt is ignored."""
    return Build(channel=_NoVerify)


class _VerifyOnce(Channel):
    """A verification whose answer was lost is taken for done."""

    __slots__ = ("_asked",)

    def _verify(self, _: s.Event, now: float) -> Sequence[s.Effect]:
        if getattr(self, "_asked", False):
            self._asked = False
            self.state = State.STEADY
            self._confirmed = len(self._own)
            return self._write_rest(now)
        self._asked = True
        return super()._verify(_, now)

    def _tail_read(self, event: s.TailRead, now: float) -> Sequence[s.Effect]:
        self._asked = False
        return super()._tail_read(event, now)


def verify_once() -> Build:
    """Verifying is not repeated until an answer comes through."""
    return Build(channel=_VerifyOnce)


class _RefusedIsThere(Channel):
    """A refused append is taken for one that is there already."""

    __slots__ = ()

    def receive(self, event: s.Event, now: float) -> Sequence[s.Effect]:
        if isinstance(event, s.Refused) and self.state is State.STEADY:
            event = s.APPENDED
        return super().receive(event, now)


def refused_is_there() -> Build:
    """Refusals are not verified."""
    return Build(channel=_RefusedIsThere)


class _NoCopy(Channel):
    """The task copy is not looked for."""

    __slots__ = ()

    def _tail_read(self, event: s.TailRead, now: float) -> Sequence[s.Effect]:
        effects = super()._tail_read(event, now)
        return self._after_copy(now) if self.state is State.COPY else effects


def no_copy() -> Build:
    """Doubt, step 2 is left out."""
    return Build(channel=_NoCopy)


class _Recut(Channel):
    """What has to be written again is merged with what came since."""

    __slots__ = ()

    def _write_rest(self, now: float) -> Sequence[s.Effect]:
        rest = self._own[self._confirmed :]
        tokens = [entry for entry in rest if entry.kind is Kind.TOKENS]
        if len(tokens) > 1:
            payload = b"".join(entry.payload for entry in tokens)
            merged = Entry(tokens[0].epoch, tokens[0].first, tokens[-1].last, Kind.TOKENS, payload)
            self._own[self._confirmed :] = [merged, *(entry for entry in rest if entry.kind is not Kind.TOKENS)]
            self._lasts = [entry.last for entry in self._own]
        return super()._write_rest(now)


def recut() -> Build:
    """Doubt, step 3: entries are cut anew."""
    return Build(channel=_Recut)


class _LostTailIgnored(Channel):
    """What was confirmed once is taken to be there for ever."""

    __slots__ = ()

    def _go_on(self, tail: Cursor, now: float) -> Sequence[s.Effect]:
        self.state = State.STEADY
        self._confirmed = max(self._confirmed, bisect_right(self._lasts, tail.position))
        return self._write_rest(now)


def lost_tail_ignored() -> Build:
    """Doubt, step 3: a tail that shows less than was confirmed is not written again."""
    return Build(channel=_LostTailIgnored)


class _LineNotRestored(Channel):
    """Only the call's own entries are written again."""

    __slots__ = ()

    def _channel_read(self, event: s.ChannelRead, now: float) -> Sequence[s.Effect]:
        effects = super()._channel_read(event, now)
        if self.state is State.RESTORING and isinstance(restore := effects[0], s.Restore):
            own = [entry for entry in restore.entries if entry.epoch == self._begun.epoch]
            return (s.Restore(restore.expected, own),)
        return effects


def line_not_restored() -> Build:
    """Doubt, step 4 without the entries of the calls before."""
    return Build(channel=_LineNotRestored)


class _BeginNotRestored(Channel):
    """The begin is not written again."""

    __slots__ = ()

    def _channel_read(self, event: s.ChannelRead, now: float) -> Sequence[s.Effect]:
        effects = super()._channel_read(event, now)
        if self.state is State.RESTORING and isinstance(restore := effects[0], s.Restore):
            rest = [entry for entry in restore.entries if entry != self._begun.begin]
            return (s.Restore(restore.expected, rest),)
        return effects


def begin_not_restored() -> Build:
    """Doubt, step 4 without the begin."""
    return Build(channel=_BeginNotRestored)


class _EndDoesNotFence(Channel):
    """A lost begin is written again after another call's end."""

    __slots__ = ()

    def receive(self, event: s.Event, now: float) -> Sequence[s.Effect]:
        if isinstance(event, s.TailRead) and event.tail is not None and event.tail.epoch < self._begun.epoch:
            event = s.TailRead(event.tail)
        if isinstance(event, s.ChannelRead):
            event = s.ChannelRead(event.ids)
        return super().receive(event, now)


def end_does_not_fence() -> Build:
    """Doubt, step 4: nobody looks whether the generation has ended."""
    return Build(channel=_EndDoesNotFence)


class _EarlyAcknowledge(Channel):
    """The copy is acknowledged with the end, not after it."""

    __slots__ = ()

    def _write(self, entry: Entry, now: float) -> Sequence[s.Effect]:
        effects = super()._write(entry, now)
        if entry.kind is Kind.END:
            return (s.Acknowledge(tuple(self.places)), *effects)
        return effects

    def receive(self, event: s.Event, now: float) -> Sequence[s.Effect]:
        if isinstance(event, s.Acknowledged) and self.state is not State.ACKNOWLEDGING:
            return ()
        return super().receive(event, now)


def early_acknowledge() -> Build:
    """Finish: the copy goes before the end is confirmed."""
    return Build(channel=_EarlyAcknowledge)


class _AcknowledgeInDoubt(Channel):
    """A finished call acknowledges after a break without looking whether its end is still there."""

    __slots__ = ()

    def _verify(self, _: s.Event, now: float) -> Sequence[s.Effect]:
        if self._own[-1].kind is Kind.END and self._told == self._lasts[-1]:
            self.state = State.ACKNOWLEDGING
            return (s.Acknowledge(tuple(self.places)),)
        return super()._verify(_, now)


def acknowledge_in_doubt() -> Build:
    """Finish: the copy goes while it is in doubt whether the end is there."""
    return Build(channel=_AcknowledgeInDoubt)


# --- Reclaiming


class _Fated(Reclaimer):
    """A reclaimer with another decision, and maybe another order."""

    acknowledge_first = False

    @staticmethod
    def fate(copy: TaskCopy, tail: Tail | None, place: Place) -> Fate:
        return decide(copy, tail, 50)

    async def settle(self, copy: TaskCopy, place: Place) -> Fate:
        while True:
            session = await self._sessions.session()
            try:
                fate = self.fate(copy, await read_tail(session, copy.generation), place)
                if self.acknowledge_first:
                    await self._acknowledge(session, place)
                if isinstance(fate, Requeue):
                    again = TaskCopy(copy.generation, fate.attempt, self._new_ref())
                    await self._add(session, again, place.lane)
                if not self.acknowledge_first:
                    await self._acknowledge(session, place)
                return fate
            except LinkLost:
                continue


class _ByPlace(_Fated):
    """Compares the ref of a begin with where the copy lies."""

    @staticmethod
    def fate(copy: TaskCopy, tail: Tail | None, place: Place) -> Fate:
        return decide(TaskCopy(copy.generation, copy.attempt, place.entry), tail, 50)


def ref_is_the_place() -> Build:
    """A copy is known by where it lies: added again, it is another one."""
    return Build(begin=_begin_by_place, reclaimer=_ByPlace)


class _AnyStaleIsDone(_Fated):
    """A begin that names this copy's own ref counts as another's."""

    @staticmethod
    def fate(copy: TaskCopy, tail: Tail | None, place: Place) -> Fate:
        fate = decide(copy, tail, 50)
        if isinstance(fate, Requeue) and tail is not None and tail.begin is not None and tail.begin.ref == copy.ref:
            return Drop(Why.STALE)
        return fate


def own_ref_is_a_duplicate() -> Build:
    """Reclaim: whose ref the begin names does not count."""
    return Build(reclaimer=_AnyStaleIsDone)


class _AcknowledgeFirst(_Fated):
    acknowledge_first = True


def acknowledge_before_add() -> Build:
    """Reclaim: the old copy goes before the new one is there."""
    return Build(reclaimer=_AcknowledgeFirst)


class _SameAttempt(_Fated):
    """The new copy has the old attempt."""

    @staticmethod
    def fate(copy: TaskCopy, tail: Tail | None, place: Place) -> Fate:
        fate = decide(copy, tail, 50)
        return Requeue(copy.attempt) if isinstance(fate, Requeue) else fate


def requeue_same_attempt() -> Build:
    """Reclaim: the attempt does not grow, so the new copy finds itself beaten."""
    return Build(reclaimer=_SameAttempt)


class _AcknowledgeAnyway(Reclaimer):
    """The old copy is acknowledged on whatever connection there is."""

    async def _acknowledge(self, session: Session, place: Place) -> None:
        while True:
            try:
                await super()._acknowledge(await self._sessions.session(), place)
                return
            except LinkLost:
                continue


def acknowledge_after_break() -> Build:
    """Reclaim: between adding and acknowledging the connection may break, and with it the store."""
    return Build(reclaimer=_AcknowledgeAnyway)


# --- Reading


class _Splice(Merger):
    """A newer call's events are shown behind whatever was shown."""

    def receive(self, epoch: int, first: int, last: int, line: Line | None = None) -> Verdict | Diverged:
        if epoch > self._epoch and first == self._position + 1:
            self._epoch, self._position, self.line = epoch, last, line
            return Verdict.DELIVER
        if epoch > self._epoch and last <= self._position:
            return Verdict.DROP
        verdict = super().receive(epoch, first, last, line)
        return Verdict.GAP if isinstance(verdict, Diverged) else verdict


async def _read_without_judging(
    session: Session, generation: str, cursor: Cursor = START, known: Line | None = None, limit: int = 1_000
) -> Read:
    read = await read_channel(session, generation, cursor, known, limit)
    if isinstance(read.outcome, Diverged):
        rest = await read_channel(session, generation, START)
        entries = [entry for entry in rest.entries if entry.last > cursor.position]
        return Read(Continues(read.outcome.line), entries, rest.tail)
    return read


def silent_splice() -> Build:
    """Readers: a text that is not part of the answer any more is continued."""
    return Build(merger=_Splice, read=_read_without_judging)


class _OldEpochsToo(Merger):
    """Events of a fenced call are shown when their positions fit."""

    def receive(self, epoch: int, first: int, last: int, line: Line | None = None) -> Verdict | Diverged:
        if epoch < self._epoch and first == self._position + 1:
            self._position = last
            return Verdict.DELIVER
        return super().receive(epoch, first, last, line)


def old_epochs_too() -> Build:
    """Readers: an event of a lower epoch is not dropped."""
    return Build(merger=_OldEpochsToo)


class _EachEvent(Ahead):
    def add(self, event: common_pb2.Event) -> None:
        event.entry_position = 0
        super().add(event)


def ahead_recut() -> Build:
    """Readers: what the channel lacks is written event by event, however its worker had cut it."""
    return Build(ahead=_EachEvent, relaxed=True)


class _WithHoles(Ahead):
    def entries(self, tail: Cursor) -> list[Entry]:
        later = [held for held in self._held if held.epoch == tail.epoch and held.last > tail.position]
        if later and later[0].first > tail.position + 1:
            return super().entries(Cursor(tail.epoch, later[0].first - 1))
        return super().entries(tail)


def ahead_with_holes() -> Build:
    """Readers: what they have is written also where something before it is missing."""
    return Build(ahead=_WithHoles, relaxed=True)


class _Patient(Channel):
    def _go_on(self, tail: Cursor, now: float) -> Sequence[s.Effect]:
        self.state = State.STEADY
        self._confirmed = max(1, bisect_right(self._lasts, tail.position))
        return self._write_rest(now)


def lost_and_not_kept_is_written_on() -> Build:
    """Doubt: a store that lost more than the call still keeps is written on to."""
    return Build(channel=lambda begun, now: _Patient(begun, now, most_bytes=1))


MUTANTS: dict[str, Callable[[], Build]] = {
    mutant.__name__: mutant
    for mutant in (
        epoch_without_random_bits,
        ref_is_the_place,
        cursor_is_a_position,
        own_pending_after_reconnect_only,
        own_begin_is_stale,
        begin_ignores_higher_attempts,
        read_then_begin,
        begin_without_copy,
        no_verify,
        verify_once,
        refused_is_there,
        no_copy,
        recut,
        lost_tail_ignored,
        line_not_restored,
        begin_not_restored,
        end_does_not_fence,
        early_acknowledge,
        acknowledge_in_doubt,
        own_ref_is_a_duplicate,
        acknowledge_before_add,
        requeue_same_attempt,
        acknowledge_after_break,
        silent_splice,
        old_epochs_too,
        ahead_recut,
        ahead_with_holes,
        lost_and_not_kept_is_written_on,
    )
}
