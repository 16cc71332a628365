"""The I/O around one channel machine: effects become commands, replies become events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import hiredis

from streamway.journal import signals as s
from streamway.journal.channel import SILENCE_S, Channel
from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry, Kind
from streamway.journal.functions import send_restore
from streamway.journal.packing import head_of, pack_append
from streamway.valkey import keys
from streamway.valkey.session import Argument, Reply, Session

# What the store says when an id is not above the newest one: the one error that is about the protocol.
_NOT_ABOVE: Final = "equal or smaller"
# After this long a store that could not take something is asked again.
_RETRY_S: Final = 0.25


class WritingListener(Protocol):
    """Who makes the events of an engine call. Called on the event loop, in order."""

    def confirmed(self, position: int) -> None:
        """Everything up to `position` is in the channel. `strict` delivers no further than this."""
        ...

    def unanswered(self, position: int) -> None:
        """The store has confirmed nothing for 50 ms. `relaxed` delivers without it until `confirmed` has caught up."""
        ...

    def stopped(self, reason: s.StopReason) -> None:
        """Stop the engine, deliver nothing more, and settle the task copies (`Reclaimer.settle`)."""
        ...

    def finished(self) -> None:
        """The end is confirmed and the task copies are acknowledged."""
        ...


class Writing:
    """One engine call's channel. `append` never waits; what it leads to is told to the listener.

    `later(seconds, call)` is the loop's timer.
    """

    def __init__(
        self,
        channel: Channel,
        session: Session,
        listener: WritingListener,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.channel = channel
        self._session = session
        self._listener = listener
        self._clock = clock
        self._later = later
        begun = channel.begun
        self._generation = begun.copy.generation
        self._key = keys.response(self._generation)
        self._head = head_of(self._key)
        self._replied = self._on_appended  # bound once
        self._epoch = begun.epoch
        # The connection it began on broke: the store may have been started anew since.
        self.reconnected = False
        if not session.alive:
            self.lost()

    def append(self, kind: Kind, last: int, payload: bytes) -> None:
        """Writes the next flush: everything after the last one up to position `last`. Raises ProtocolViolation."""
        channel = self.channel
        entry = Entry(self._epoch, channel.position + 1, last, kind, payload)
        if channel.append(entry, self._clock()):
            self._write_one(entry)
        else:
            self.receive(entry)

    def copy_seen(self, lane: str, entry: str) -> None:
        """A copy with this call's ref was read from a lane: it is acknowledged with the other at the end."""
        self.receive(s.CopySeen(s.Place(lane, entry)))

    def lost(self) -> None:
        """The session broke."""
        self.receive(s.Lost())

    def connected(self, session: Session) -> None:
        """There is a new one."""
        self.reconnected = True
        self._session = session
        self.receive(s.Connected())

    def tick(self) -> None:
        """Time passes."""
        self.receive(s.Tick())

    def receive(self, event: s.Event) -> None:
        """Gives an event to the machine and does what it asks for."""
        for effect in self.channel.receive(event, self._clock()):
            if type(effect) is s.Write:
                self._write(effect.entries)
            elif type(effect) is s.Confirmed:
                self._listener.confirmed(effect.position)
            else:
                self._perform(effect)

    def _write(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._write_one(entry)

    def _write_one(self, entry: Entry) -> None:
        self._session.send_packed(pack_append(self._key, self._head, entry), self._replied)

    def _on_appended(self, reply: Reply) -> None:
        if type(reply) is bytes:
            position = self.channel.appended(self._clock())
            if position is None:
                self.receive(s.APPENDED)
            elif position:
                self._listener.confirmed(position)
        elif reply is None or _NOT_ABOVE in str(reply):
            self.receive(s.Refused())
        else:
            self.receive(s.AppendFailed())

    def _perform(self, effect: s.Effect) -> None:
        match effect:
            case s.ReadTail():
                self._ask(("XREVRANGE", self._key, "+", "-", "COUNT", 1), _tail_read)
            case s.ReadCopy(place, ref):
                command = ("XRANGE", place.lane, place.entry, place.entry)
                self._ask(command, lambda reply: s.CopyRead(has_ref(reply, ref)))
            case s.AddCopy(lane, copy):
                fields = [part for pair in copy.fields().items() for part in pair]
                self._ask(("XADD", lane, "*", *fields), lambda reply: s.CopyAdded(reply.decode()))
            case s.ReadChannel():
                self._ask(("XRANGE", self._key, "-", "+"), _channel_read)
            case s.Restore(expected, entries):
                answer = self._answer(lambda reply: s.Restored(reply == 1))
                send_restore(self._session, self._generation, expected, entries, answer)
            case s.Acknowledge(places):
                self._acknowledge(places)
            case _:
                self._tell(effect)

    def _tell(self, effect: s.Effect) -> None:
        """The effects that need no answer of the store."""
        match effect:
            case s.Expire(ttl_ms):
                self._session.send(("PEXPIRE", self._key, ttl_ms), _ignore)
            case s.ConnectLater():
                session = self._session
                # The store answers, so the link is not silent; but this channel's entries wait.
                self._later(SILENCE_S, self.tick)
                self._later(_RETRY_S, lambda: self._retry(session))
            case s.Unanswered(position):
                self._listener.unanswered(position)
            case s.Stop(reason):
                self._listener.stopped(reason)
            case s.Finished():
                self._listener.finished()

    def _acknowledge(self, places: Sequence[s.Place]) -> None:
        by_lane: dict[str, list[str]] = {}
        for place in places:
            by_lane.setdefault(place.lane, []).append(place.entry)
        for index, (lane, entries) in enumerate(by_lane.items(), 1):
            self._session.send(("MULTI",), _ignore)
            self._session.send(("XACK", lane, keys.LANE_GROUP, *entries), _ignore)
            self._session.send(("XDEL", lane, *entries), _ignore)
            last = index == len(by_lane)
            self._session.send(("EXEC",), self._answer(lambda _: s.Acknowledged()) if last else _ignore)

    def _retry(self, session: Session) -> None:
        if session is self._session and session.alive:
            self.receive(s.Connected())

    def _ask(self, command: Sequence[Argument], event: Callable[[Reply], s.Event]) -> None:
        self._session.send(command, self._answer(event))

    def _answer(self, event: Callable[[Reply], s.Event]) -> Callable[[Reply], None]:
        def on_reply(reply: Reply) -> None:
            self.receive(s.StepFailed() if isinstance(reply, hiredis.ReplyError) else event(reply))

        return on_reply


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""


def _id(row: Reply) -> Cursor:
    epoch, _, position = row[0].partition(b"-")
    return Cursor(int(epoch), int(position))


def _ends(row: Reply) -> bool:
    fields: list[bytes] = row[1]
    return fields[fields.index(b"kind") + 1] == b"end"


def _tail_read(reply: Reply) -> s.TailRead:
    return s.TailRead(_id(reply[0]), _ends(reply[0])) if reply else s.TailRead(None)


def _channel_read(reply: Reply) -> s.ChannelRead:
    return s.ChannelRead([_id(row) for row in reply], bool(reply) and _ends(reply[-1]))


def has_ref(reply: Reply, ref: str) -> bool:
    """Whether the one entry asked for is there and is this copy."""
    if not reply:
        return False
    fields: list[bytes] = reply[0][1]
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(b"ref") == ref.encode()
