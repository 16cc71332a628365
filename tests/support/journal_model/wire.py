"""Connections whose traffic moves only when the schedule says so, and procedures that wait on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

import hiredis

from streamway.valkey.session import Argument, LinkLost, Reply, StoreRefused
from tests.support.journal_model.store import ModelStore


class _Call:
    """What a procedure yields while it waits for a reply."""

    def __init__(self, session: ModelSession, command: tuple[Argument, ...]) -> None:
        self.session = session
        self.command = command

    def __await__(self) -> Generator[_Call, Reply, Reply]:
        reply = yield self
        if isinstance(reply, hiredis.ReplyError):
            raise StoreRefused(str(reply))
        return reply


class _Connect:
    """What a procedure yields while it waits for a connection."""

    def __await__(self) -> Generator[_Connect, ModelSession, ModelSession]:
        session = yield self
        return session


class ModelSession:
    """One connection, as the library's port `Session` describes it."""

    def __init__(self, store: ModelStore, actor: str) -> None:
        self._store = store
        self._actor = actor
        self.alive = True
        self.requests: deque[tuple[tuple[Argument, ...], Callable[[Reply], None]]] = deque()
        self.replies: deque[tuple[Callable[[Reply], None], Reply]] = deque()

    def send(self, command: Sequence[Argument], on_reply: Callable[[Reply], None]) -> None:
        if self.alive:
            self.requests.append((tuple(command), on_reply))

    def send_packed(self, packed: bytes, on_reply: Callable[[Reply], None]) -> None:
        self.send_group(packed, [on_reply])

    def send_group(self, packed: bytes, on_replies: Sequence[Callable[[Reply], None]]) -> None:
        for command, on_reply in zip(unpacked(packed), on_replies, strict=True):
            self.send(command, on_reply)

    async def call(self, *command: Argument) -> Reply:
        if not self.alive:
            raise LinkLost
        return await _Call(self, command)

    async def call_group(self, packed: bytes, count: int) -> list[Reply]:
        *others, last = unpacked(packed)
        replies: list[Reply] = []
        for command in others:
            self.send(command, replies.append)
        replies.append(await self.call(*last))
        assert len(replies) == count
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise StoreRefused(str(reply))
        return replies

    def execute_next(self) -> None:
        """The server works on the oldest request; a transaction is one step."""
        while True:
            command, on_reply = self.requests.popleft()
            self.replies.append((on_reply, self._store.execute(self._actor, command)))
            if not self._store.in_transaction:
                return

    def deliver_next(self) -> None:
        """The oldest reply arrives."""
        on_reply, reply = self.replies.popleft()
        on_reply(reply)

    def break_off(self, late: int) -> deque[tuple[Argument, ...]]:
        """Breaks. Replies under way are lost; the first `late` requests still reach the server, some time."""
        self.alive = False
        commands = [command for command, _ in self.requests]
        self.requests.clear()
        self.replies.clear()
        kept = deque(commands[:late])
        while not _closed(kept):
            kept.pop()
        return kept


def unpacked(packed: bytes) -> list[tuple[Argument, ...]]:
    """The commands that these bytes are. A payload stays bytes."""
    reader = hiredis.Reader()
    reader.feed(packed)
    commands: list[tuple[Argument, ...]] = []
    words: list[bytes]
    while (words := reader.gets()) is not False:
        payload = words.index(b"payload") + 1 if b"payload" in words else -1
        commands.append(tuple(word if index == payload else word.decode() for index, word in enumerate(words)))
    return commands


def _closed(commands: deque[tuple[Argument, ...]]) -> bool:
    """Whether every MULTI has its EXEC: without it the server does nothing."""
    opened = sum(command[0] == "MULTI" for command in commands)
    return opened == sum(command[0] == "EXEC" for command in commands)


class Procedure:
    """One coroutine of the library or of an actor, moved by replies instead of an event loop."""

    def __init__(self, actor: Actor, work: Coroutine[Any, Any, None]) -> None:
        self._actor = actor
        self._work = work
        self._waits_on: ModelSession | None = None
        self.done = False

    def start(self) -> None:
        self._advance(lambda: self._work.send(None))

    def lost(self, session: ModelSession) -> None:
        """Its connection broke."""
        if self._waits_on is session and not self.done:
            self._waits_on = None
            self._advance(lambda: self._work.throw(LinkLost()))

    def close(self) -> None:
        self.done = True
        self._work.close()

    def _advance(self, step: Callable[[], Any]) -> None:
        try:
            waits = step()
        except StopIteration:
            self.done = True
            return
        if isinstance(waits, _Connect):
            self._actor.when_connected(self._resume)
            return
        self._waits_on = waits.session
        waits.session.send(waits.command, self._resume)

    def _resume(self, value: Any) -> None:
        if not self.done:
            self._waits_on = None
            self._advance(lambda: self._work.send(value))


class Actor:
    """A process: one connection, and what runs in it. Also the library's port `Sessions`."""

    def __init__(self, store: ModelStore, name: str) -> None:
        self.store = store
        self.name = name
        self.alive = True
        self.paused = False
        self.wire: ModelSession | None = None
        self._waiting: list[Callable[[ModelSession], None]] = []
        self.procedures: list[Procedure] = []

    async def session(self) -> ModelSession:
        if self.wire is not None and self.wire.alive:
            return self.wire
        return await _Connect()

    def when_connected(self, resume: Callable[[ModelSession], None]) -> None:
        self._waiting.append(resume)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        procedure = Procedure(self, work)
        self.procedures = [each for each in self.procedures if not each.done]
        self.procedures.append(procedure)
        procedure.start()

    def connect(self) -> None:
        self.wire = ModelSession(self.store, self.name)
        waiting, self._waiting = self._waiting, []
        self.on_connected(self.wire)
        for resume in waiting:
            resume(self.wire)

    def break_wire(self, late: int = 0) -> deque[tuple[Argument, ...]]:
        """Breaks the connection; returns the requests that still reach the server."""
        wire, self.wire = self.wire, None
        if wire is None:
            return deque()
        kept = wire.break_off(late)
        self.on_lost()
        for procedure in list(self.procedures):
            procedure.lost(wire)
        return kept

    def crash(self, late: int = 0) -> deque[tuple[Argument, ...]]:
        """The process dies. What it had sent may still arrive."""
        wire, self.wire = self.wire, None
        kept = wire.break_off(late) if wire is not None else deque()
        for procedure in self.procedures:
            procedure.close()
        self.procedures = []
        self._waiting = []
        self.alive = False
        self.paused = False
        self.forget()
        return kept

    def on_connected(self, session: ModelSession) -> None:
        """There is a new connection."""

    def on_lost(self) -> None:
        """The connection broke."""

    def forget(self) -> None:
        """The process died: everything it knew is gone."""
