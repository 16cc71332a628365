"""Which of its engine's slots a call goes to, so that a session finds its own KV again.

    session a ──► slot 0   its last call ran there, and the slot is free: home
    session b ──► slot 1   never used: free; from now on its home
    session a ──►  ·       slot 0 works: the engine chooses among the others, and nobody waits for a pinned slot
    session c ──►  ·       every slot is somebody's: the engine chooses by the longest common beginning
    session d ──► slot 1   its KV was saved elsewhere and is read into the free slot that was left longest: restored

A pinned call waits until its slot is free, also while others are, so that a slot is named only where it is known to be free. What
the engine chooses is not known until it has told; until then no slot is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Why = Literal["home", "free", "busy", "open", "restored"]


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """Where one call runs. `slot` None: the engine chooses. `takes`: how many slots it has."""

    session: str
    slot: int | None
    takes: int
    why: Why


class Slots:
    """The books of `count` slots that nobody else uses. A session is any name; "" is none."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._home: dict[str, int] = {}
        # The one that was used last comes last.
        self._owner: dict[int, str] = {}
        self._running: set[Seat] = set()
        self._fresh = set(range(count))
        self.given: dict[Why, int] = dict.fromkeys(get_args(Why), 0)

    @property
    def homes(self) -> dict[str, int]:
        """The slot of each session that has one."""
        return dict(self._home)

    @property
    def idle(self) -> frozenset[int]:
        """Slots that certainly nobody works in; none while a call is somewhere."""
        if any(seat.slot is None for seat in self._running):
            return frozenset()
        return frozenset(range(self._count)) - {seat.slot for seat in self._running if seat.slot is not None}

    def knows(self, session: str) -> bool:
        """Whether the session's KV is in a slot."""
        return session in self._home

    def take(self, session: str, choices: int = 1, *, saved: bool = False) -> Seat:
        """Where the next call of a session runs. `saved`: its KV lies in a file, and is to be read into a slot first."""
        slot, why = self._choose(session, choices)
        if (saved and slot is None and why == "open") or (saved and why == "free"):
            into = self._longest_left()
            slot, why = (slot, why) if into is None else (into, "restored")
        seat = Seat(session, slot, min(choices, self._count), why)
        self.given[why] += 1
        self._running.add(seat)
        if slot is not None and session:
            self._settle(session, slot)
        elif slot is None:
            # It may run in any that is free, and a session that is not known to be elsewhere may end up there.
            self._fresh.clear()
        return seat

    def _choose(self, session: str, choices: int) -> tuple[int | None, Why]:
        idle, home = self.idle, self._home.get(session)
        if choices > 1 or not session:
            return None, "open"
        if home is not None:
            return (home, "home") if home in idle else (None, "busy")
        fresh = self._fresh & idle
        return (min(fresh), "free") if fresh else (None, "open")

    def _longest_left(self) -> int | None:
        idle = self.idle
        fresh = self._fresh & idle
        return min(fresh) if fresh else next((slot for slot in self._owner if slot in idle), min(idle, default=None))

    def leave(self, seat: Seat) -> None:
        """The call is over; idempotent."""
        self._running.discard(seat)

    def observe(self, working: frozenset[int]) -> None:
        """The engine has told in which slots it works. A call that it placed itself is found where only one can be meant."""
        open_seats = [seat for seat in self._running if seat.slot is None]
        found = working - {seat.slot for seat in self._running if seat.slot is not None}
        if len(open_seats) == len(found) == 1 and open_seats[0].session and open_seats[0].takes == 1:
            self._settle(open_seats[0].session, min(found))

    def forget(self) -> None:
        """The engine's KV is gone."""
        self._home.clear()
        self._owner.clear()
        self._fresh = set(range(self._count))

    def _settle(self, session: str, slot: int) -> None:
        self._fresh.discard(slot)
        before = self._owner.pop(slot, None)
        if before is not None:
            self._home.pop(before, None)
        old = self._home.pop(session, None)
        if old is not None:
            self._owner.pop(old, None)
        self._home[session] = slot
        self._owner[slot] = session
