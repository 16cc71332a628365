"""Taking task copies from workers that are gone, and settling copies that have nothing to run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from streamway.journal import functions
from streamway.journal.ending import end_unrun
from streamway.journal.entries import Tail, attempt_of, parse_entries
from streamway.journal.reading import read_tail
from streamway.journal.reclaim import Fate, GiveUp, Requeue, decide
from streamway.journal.signals import Place
from streamway.lanes.task import MOST_ATTEMPTS, TaskCopy
from streamway.valkey import keys
from streamway.valkey.session import LinkLost, Reply, Session, Sessions, StoreRefused

_log = structlog.get_logger("reclaimer")
_PAGE: Final = 100


class DeadLetters(Protocol):
    """What giving a task up needs to know about its generation."""

    async def model_of(self, generation: str) -> str:
        """The model, which names the dead lane."""
        ...

    def end_payload(self, generation: str) -> bytes:
        """The payload of the `end` entry: one error event, whose position the entry gives it."""
        ...


class Reclaimer:
    """Moves the work of the dead. `name` is its consumer name and must have a lease, so that others take over its own.

    `place` chooses the lane for a new copy; it is given the copy and the lane of the old one.
    """

    def __init__(
        self,
        sessions: Sessions,
        name: str,
        place: Callable[[TaskCopy, str], str],
        new_ref: Callable[[], str],
        new_epoch: Callable[[int], int],
        dead_letters: DeadLetters,
        *,
        most_attempts: int = MOST_ATTEMPTS,
        ttl_ms: int = 300_000,
    ) -> None:
        self._sessions = sessions
        self._name = name
        self._place = place
        self._new_ref = new_ref
        self._new_epoch = new_epoch
        self._dead_letters = dead_letters
        self._most_attempts = most_attempts
        self._ttl_ms = ttl_ms

    async def sweep(
        self, lane: str, is_gone: Callable[[str], bool], *, owner_gone: bool
    ) -> list[tuple[TaskCopy, Fate]]:
        """Claims what there is in one lane and settles each copy.

        Raises LinkLost or StoreRefused: then what was claimed stays pending under this name, and the next sweep has it.
        """
        claimed = await self.claim(lane, is_gone, owner_gone=owner_gone)
        return [(copy, await self.settle(copy, place)) for copy, place in claimed]

    async def claim(
        self, lane: str, is_gone: Callable[[str], bool], *, owner_gone: bool
    ) -> list[tuple[TaskCopy, Place]]:
        """Takes from one lane what is pending for consumers that are gone, and if the lane's own worker is gone also what
        nobody has read. What this reclaimer itself left pending counts as gone. Each must then be settled.

        Raises LinkLost or StoreRefused; what was claimed until then is pending under this name.
        """
        session = await self._sessions.session()
        try:
            await session.call("XGROUP", "CREATE", lane, keys.LANE_GROUP, "0")
        except StoreRefused as refused:
            if not str(refused).startswith("BUSYGROUP"):
                return []  # there is no such lane
        claimed = await self._claim(session, lane, lambda holder: holder == self._name or is_gone(holder))
        if owner_gone:
            claimed += await self._read_out(session, lane)
        return claimed

    async def settle(self, copy: TaskCopy, place: Place, *, planned: bool = False) -> Fate:
        """Does with one copy, pending for whomever calls, what is right by the state of its channel.

        Also for a worker's own copy that turned out done, gone, stale or fenced, or that it gives away as `planned`.
        Starts over when the connection breaks.
        Raises StoreRefused; the copy is then still there.
        """
        while True:
            session = await self._sessions.session()
            try:
                tail = await read_tail(session, copy.generation)
                fate = decide(copy, tail, self._most_attempts, planned=planned)
                if isinstance(fate, Requeue):
                    fresh = TaskCopy(copy.generation, fate.attempt, self._new_ref(), fate.excused)
                    await self._add(session, fresh, place.lane)
                elif isinstance(fate, GiveUp) and tail is not None and not await self._bury(session, copy, place, tail):
                    continue
                # Only now, and on the same connection: if it broke since, the store may have lost what was added.
                await self._acknowledge(session, place)
                return fate
            except LinkLost:
                continue

    async def _add(self, session: Session, copy: TaskCopy, lane: str) -> None:
        fields = [part for pair in copy.fields().items() for part in pair]
        await session.call("XADD", self._place(copy, lane), "*", *fields)

    async def _acknowledge(self, session: Session, place: Place) -> None:
        """One step. The four commands go out together and break together."""
        replies: list[Reply] = []
        for command in (
            ("MULTI",),
            ("XACK", place.lane, keys.LANE_GROUP, place.entry),
            ("XDEL", place.lane, place.entry),
        ):
            session.send(command, replies.append)
        await session.call("EXEC")

    async def _claim(self, session: Session, lane: str, gone: Callable[[str], bool]) -> list[tuple[TaskCopy, Place]]:
        found: list[tuple[TaskCopy, Place]] = []
        start = "-"
        while True:
            rows = await session.call("XPENDING", lane, keys.LANE_GROUP, start, "+", _PAGE)
            ids = [row[0].decode() for row in rows if gone(row[1].decode())]
            if ids:
                # JUSTID: taking a copy over is not a delivery.
                taken = await session.call("XCLAIM", lane, keys.LANE_GROUP, self._name, 0, *ids, "JUSTID")
                for id_ in taken:
                    found += await self._copies(session, lane, await session.call("XRANGE", lane, id_, id_))
            if len(rows) < _PAGE:
                return found
            start = f"({rows[-1][0].decode()}"

    async def _read_out(self, session: Session, lane: str) -> list[tuple[TaskCopy, Place]]:
        """What nobody has read is pending nowhere: it becomes pending for this reclaimer by being read."""
        found: list[tuple[TaskCopy, Place]] = []
        while True:
            reply = await session.call(
                "XREADGROUP", "GROUP", keys.LANE_GROUP, self._name, "COUNT", _PAGE, "STREAMS", lane, ">"
            )
            if not reply:
                return found
            found += await self._copies(session, lane, reply[0][1])

    async def _copies(self, session: Session, lane: str, entries: Reply) -> list[tuple[TaskCopy, Place]]:
        """The copies in a reply. What is not one of ours is logged and removed, since no worker could ever run it."""
        found = []
        for id_, fields in entries:
            place = Place(lane, id_.decode())
            try:
                copy = TaskCopy.parse(dict(zip(fields[::2], fields[1::2], strict=True)))
            except (KeyError, ValueError):
                _log.error("task_unreadable", lane=lane, entry=place.entry)
                await self._acknowledge(session, place)
                continue
            found.append((copy, place))
        return found

    async def _bury(self, session: Session, copy: TaskCopy, place: Place, tail: Tail) -> bool:
        """To the dead lane first, so that no end is without its history; then begin and end in one step, so that nobody
        finds a begin without an end. False: somebody else began meanwhile; decide anew."""
        model = await self._dead_letters.model_of(copy.generation)
        await session.call("XADD", keys.dead(model), "*", *await self._history(session, copy, place))
        epoch = self._new_epoch(max(attempt_of(tail.entry.epoch), copy.attempt) + 1)
        payload = self._dead_letters.end_payload(copy.generation)
        answer = await end_unrun(session, copy.generation, epoch, self._new_ref(), self._name, payload, self._ttl_ms)
        return not isinstance(answer, functions.Stale)

    async def _history(self, session: Session, copy: TaskCopy, place: Place) -> list[str]:
        """Fields of a dead lane's entry: the copy, where it lay, and each engine call there was."""
        reply = await session.call("XRANGE", keys.response(copy.generation), "-", "+")
        begins = [entry for entry in parse_entries(reply) if entry.begin is not None]
        calls = [
            {
                "attempt": attempt_of(entry.epoch),
                "epoch": entry.epoch,
                "position": entry.first,
                "worker": entry.begin.worker if entry.begin else "",
            }
            for entry in begins
        ]
        fields = [part for pair in copy.fields().items() for part in pair]
        return [*map(str, fields), "lane", place.lane, "calls", json.dumps(calls)]
