"""How one engine call writes its entries: a state machine without I/O.

                      Entry: Write                 all confirmed, the last is an end
                       ┌──────┐                  ┌─────────────► ACKNOWLEDGING ──► DONE
                       └► STEADY ────────────────┘                     │
            Refused:   │  ▲  │  Lost                                   │ Lost
            ReadTail   │  │  └─────────────► BROKEN ◄──────────────────┘
                       ▼  │                    │ Connected: ReadTail
      ┌─────────────► TAIL ◄───────────────────┘
      │                │  no channel, a higher epoch, another's end ──► STOPPED
      │ moved          ▼
      │            COPY, ADDING: is my task copy still there? else add it again
      │                │
      │                ├─ the tail is mine ──► STEADY: write again what is missing
      │                ▼
      └── RESTORING ◄─ COMPARING: my begin was lost; what of the line is missing?

Everything between Lost or Refused and STEADY is *doubt*: new entries wait, and Lost starts it over. An entry that was cut
is always written with the same id and bytes, because a request that seems lost may still arrive. The oldest confirmed ones
make room when one call has a megabyte of them; a store that then lost more than is kept can't be healed: STOPPED.
`docs/protocol-journal.md` has the rules and why each is needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from streamway.journal import signals as s
from streamway.journal.begun import Begun
from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry, Kind
from streamway.journal.transitions import TRANSITIONS, State

# A store that confirms nothing for this long is silent: callers that may go on without it do.
SILENCE_S: Final = 0.05
# The time to live is renewed at most this often.
RENEW_S: Final = 60.0
# Bytes of entries that one call keeps; beyond that the oldest confirmed ones go. At 50 flushes a second of a few words that is
# more than a minute, and a store that syncs each second can lose the last one.
MOST_BYTES: Final = 1_048_576
# What an entry takes beside its payload.
_OVERHEAD_BYTES: Final = 200


class ProtocolViolation(Exception):
    """An event came that the state does not know, or an entry that does not follow the last: a bug of the caller."""


# Names of enums are looked up once, not for each token.
_STEADY: Final = State.STEADY
_TOKENS: Final = Kind.TOKENS
_END: Final = Kind.END
_NOTHING: Final[tuple[s.Effect, ...]] = ()


class Channel:
    """Writes for one engine call. `receive` each event; perform the effects in order."""

    __slots__ = (
        "_begun",
        "_bytes",
        "_confirmed",
        "_finished_ttl_ms",
        "_lasts",
        "_live_ttl_ms",
        "_most_bytes",
        "_own",
        "_renewed",
        "_restoring",
        "_silent",
        "_tail",
        "_told",
        "_waiting_since",
        "places",
        "state",
    )

    def __init__(
        self,
        begun: Begun,
        now: float,
        *,
        live_ttl_ms: int = 600_000,
        finished_ttl_ms: int = 300_000,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.state = State.STEADY
        self.places = [begun.place]
        self._begun = begun
        self._live_ttl_ms = live_ttl_ms
        self._finished_ttl_ms = finished_ttl_ms
        self._most_bytes = most_bytes
        # Own entries in order, from the begin on, and the last position of each. Of these the first `_confirmed` are in the
        # channel as far as is known. When the oldest were dropped `_begun` has no entries before either.
        self._bytes = 0
        self._own = [begun.begin]
        self._lasts = [begun.begin.last]
        self._confirmed = 1
        self._told = begun.begin.last
        self._renewed = now
        self._waiting_since: float | None = None
        self._silent = False
        self._tail = Cursor(begun.epoch, begun.begin.last)
        self._restoring = 0

    @property
    def running(self) -> bool:
        """False once nothing is left to write or confirm. While True, a copy with this ref that turns up is `CopySeen`."""
        return self.state not in _OVER

    @property
    def in_doubt(self) -> bool:
        """Whether it is not known what the channel holds."""
        return self.state in _DOUBT

    @property
    def begun(self) -> Begun:
        return self._begun

    @property
    def unconfirmed_bytes(self) -> int:
        """What waits for the store."""
        return sum([_size(entry) for entry in self._own[self._confirmed :]])

    @property
    def kept(self) -> int:
        """Entries of this call that it could write again."""
        return len(self._own)

    @property
    def position(self) -> int:
        """The last position that was given to it."""
        return self._lasts[-1]

    @property
    def confirmed(self) -> int:
        """The last position known to be in the channel; after the store lost something, lower than it was."""
        return self._lasts[self._confirmed - 1] if self._confirmed else 0

    def receive(self, event: s.Event, now: float) -> Sequence[s.Effect]:
        """The effects of one event, in order. Raises ProtocolViolation."""
        name = TRANSITIONS[self.state].get(type(event))
        if name is None:
            raise ProtocolViolation(f"{type(event).__name__} while {self.state.value}")
        effects: Sequence[s.Effect] = getattr(self, name)(event, now)
        return effects

    # --- Writing

    def append(self, entry: Entry, now: float) -> bool:
        """The hot path of an `Entry`: True when all it asks for is to be written. False: nothing was done, `receive` it."""
        lasts = self._lasts
        if (
            self.state is not _STEADY
            or entry.kind is not _TOKENS
            or entry.first != lasts[-1] + 1
            or now - self._renewed >= RENEW_S
            or self._own[-1].kind is _END
            or self._bytes >= self._most_bytes
            or entry.epoch != self._begun.begin.epoch
        ):
            return False
        self._own.append(entry)
        lasts.append(entry.last)
        self._bytes += len(entry.payload) + _OVERHEAD_BYTES
        if self._waiting_since is None:
            self._waiting_since = now
        return True

    def appended(self, now: float) -> int | None:
        """The hot path of `Appended`: the position that is newly confirmed, 0 for none. None: nothing was done, `receive` it."""
        own = self._own
        if self.state is not _STEADY or own[-1].kind is _END:
            return None
        self._confirmed = confirmed = self._confirmed + 1
        self._silent = False
        self._waiting_since = now if confirmed < len(own) else None
        position = self._lasts[confirmed - 1]
        if position <= self._told:
            return 0
        self._told = position
        return position

    def _write(self, entry: Entry, now: float) -> Sequence[s.Effect]:
        self._keep(entry, now)
        if self._bytes >= self._most_bytes:
            self._drop_oldest()
        if now - self._renewed < RENEW_S:
            return (s.Write((entry,)),)
        return (s.Write((entry,)), *self._renew(now))

    def _queue(self, entry: Entry, now: float) -> Sequence[s.Effect]:
        self._keep(entry, now)
        return _NOTHING

    def _keep(self, entry: Entry, now: float) -> None:
        if entry.first != self._lasts[-1] + 1 or entry.epoch != self._begun.epoch or self._own[-1].kind is Kind.END:
            raise ProtocolViolation(f"entry {entry.id} from {entry.first} does not follow {self._own[-1].id}")
        self._own.append(entry)
        self._lasts.append(entry.last)
        self._bytes += _size(entry)
        if self._waiting_since is None:
            self._waiting_since = now

    def _drop_oldest(self) -> None:
        """Forgets confirmed entries until half the room is free, but never the newest of them."""
        count = 0
        while count < self._confirmed - 1 and self._bytes > self._most_bytes // 2:
            self._bytes -= _size(self._own[count])
            count += 1
        if count:
            del self._own[:count]
            del self._lasts[:count]
            self._confirmed -= count
            self._begun = replace(self._begun, before=())

    def _appended(self, _: s.Appended, now: float) -> Sequence[s.Effect]:
        self._confirmed += 1
        return self._progress(now)

    def _progress(self, now: float) -> Sequence[s.Effect]:
        """Tells what is newly confirmed; when that is all of a finished call, acknowledges."""
        self._silent = False
        position = self._lasts[self._confirmed - 1]
        effects: list[s.Effect] = []
        if position > self._told:
            self._told = position
            effects.append(s.Confirmed(position))
        if self._confirmed < len(self._own):
            self._waiting_since = now
            return effects
        self._waiting_since = None
        if self._own[-1].kind is Kind.END:
            self.state = State.ACKNOWLEDGING
            effects += [s.Expire(self._finished_ttl_ms), s.Acknowledge(tuple(self.places))]
        return effects

    def _acknowledged(self, _: s.Acknowledged, now: float) -> Sequence[s.Effect]:
        self.state = State.DONE
        return (s.Finished(),)

    # --- Doubt

    def _lost(self, _: s.Lost, now: float) -> Sequence[s.Effect]:
        self.state = State.BROKEN
        return _NOTHING

    def _failed(self, _: s.Event, now: float) -> Sequence[s.Effect]:
        self.state = State.BROKEN
        return (s.ConnectLater(),)

    def _verify(self, _: s.Event, now: float) -> Sequence[s.Effect]:
        """A refused append alone proves nothing: it may be this call's own, already there."""
        self.state = State.TAIL
        return (s.ReadTail(),)

    def _tail_read(self, event: s.TailRead, now: float) -> Sequence[s.Effect]:
        if event.tail is None:
            return self._stop(s.StopReason.EXPIRED)
        if event.tail.epoch > self._begun.epoch:
            return self._stop(s.StopReason.FENCED)
        if event.ended and event.tail.epoch < self._begun.epoch:
            return self._stop(s.StopReason.ENDED)
        self._tail = event.tail
        if self._own[-1].kind is Kind.END and event.tail == self._own[-1].id:
            # The generation has ended: no copy is needed to protect it, and a new one would be one more to read.
            return self._go_on(event.tail, now)
        self.state = State.COPY
        return (s.ReadCopy(self.places[-1], self._begun.copy.ref),)

    def _copy_read(self, event: s.CopyRead, now: float) -> Sequence[s.Effect]:
        if event.found:
            return self._after_copy(now)
        self.state = State.ADDING
        return (s.AddCopy(self.places[-1].lane, self._begun.copy),)

    def _copy_added(self, event: s.CopyAdded, now: float) -> Sequence[s.Effect]:
        self.places[-1] = s.Place(self.places[-1].lane, event.entry)
        return self._after_copy(now)

    def _after_copy(self, now: float) -> Sequence[s.Effect]:
        if self._tail.epoch == self._begun.epoch:
            return self._go_on(self._tail, now)
        self.state = State.COMPARING
        return (s.ReadChannel(),)

    def _go_on(self, tail: Cursor, now: float) -> Sequence[s.Effect]:
        """The tail is this call's: what it covers is confirmed, the rest is written (again)."""
        if tail.position < self._lasts[0]:
            return self._stop(s.StopReason.LOST)
        self.state = State.STEADY
        self._confirmed = bisect_right(self._lasts, tail.position)
        return self._write_rest(now)

    def _write_rest(self, now: float) -> Sequence[s.Effect]:
        rest = tuple(self._own[self._confirmed :])
        effects = list(self._progress(now))
        if rest:
            effects.append(s.Write(rest))
        return effects

    def _channel_read(self, event: s.ChannelRead, now: float) -> Sequence[s.Effect]:
        """The begin was lost. Writes what of the line is missing, the begin, and what followed it."""
        if not event.ids:
            return self._stop(s.StopReason.EXPIRED)
        tail = event.ids[-1]
        if tail.epoch > self._begun.epoch:
            return self._stop(s.StopReason.FENCED)
        if tail.epoch == self._begun.epoch:
            return self._go_on(tail, now)
        if event.ended:
            return self._stop(s.StopReason.ENDED)
        if self._own[0] is not self._begun.begin:
            return self._stop(s.StopReason.LOST)
        present = set(event.ids)
        missing = [entry for entry in (*self._begun.before, *self._own) if entry.id not in present]
        if missing[0].id < tail:
            # Somebody else has begun in the meantime and wrote beyond it: this line can't be completed any more.
            return self._stop(s.StopReason.FENCED)
        self.state = State.RESTORING
        self._restoring = len(self._own)
        return (s.Restore(tail, missing),)

    def _restored(self, event: s.Restored, now: float) -> Sequence[s.Effect]:
        if not event.done:
            return self._verify(event, now)
        self.state = State.STEADY
        self._confirmed = self._restoring
        return self._write_rest(now)

    def _stop(self, reason: s.StopReason) -> Sequence[s.Effect]:
        self.state = State.STOPPED
        self._waiting_since = None
        return (s.Stop(reason),)

    # --- Beside

    def _copy_seen(self, event: s.CopySeen, now: float) -> Sequence[s.Effect]:
        if event.place not in self.places:
            self.places.insert(0, event.place)
        return _NOTHING

    def _tick(self, _: s.Tick, now: float) -> Sequence[s.Effect]:
        if self._silent or self._waiting_since is None or now - self._waiting_since < SILENCE_S:
            return _NOTHING
        self._silent = True
        return (s.Unanswered(self.confirmed),)

    def _steady_tick(self, event: s.Tick, now: float) -> Sequence[s.Effect]:
        """An engine that thinks for long must not lose its channel."""
        renewal = self._renew(now) if now - self._renewed >= RENEW_S else _NOTHING
        return (*self._tick(event, now), *renewal)

    def _renew(self, now: float) -> Sequence[s.Effect]:
        self._renewed = now
        return (s.Expire(self._live_ttl_ms),)

    def _ignore(self, _: s.Event, now: float) -> Sequence[s.Effect]:
        return _NOTHING


def _size(entry: Entry) -> int:
    return len(entry.payload) + _OVERHEAD_BYTES


_OVER: Final = frozenset({State.ACKNOWLEDGING, State.DONE, State.STOPPED})
_DOUBT: Final = frozenset({State.BROKEN, State.TAIL, State.COPY, State.ADDING, State.COMPARING, State.RESTORING})
