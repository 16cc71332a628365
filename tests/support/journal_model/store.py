"""One real server, spoken to synchronously, with a log of its writes like an append-only file."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hiredis

from streamway.journal import functions
from streamway.valkey.session import Argument, Reply

_WRITES = frozenset(
    {"XADD", "EVALSHA", "EVAL", "XACK", "XDEL", "XGROUP", "XREADGROUP", "XCLAIM", "PEXPIRE", "EXEC", "DEL"}
)


class ModelStore:
    """Executes commands. `on_write(actor, command, reply)` hears of each that succeeded.

    `scripts` replaces Lua scripts by their hash: how a mutant changes a step inside the store.
    """

    def __init__(self, socket_path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(socket_path))
        self._reader = hiredis.Reader()
        self.scripts: dict[str, str] = {}
        for script in (functions.ACCEPT, functions.BEGIN, functions.RESTORE):
            self.ask("SCRIPT", "LOAD", script.source)  # a schedule must not depend on which came before it
        self.on_write: Callable[[str, Sequence[Argument], Reply], None] = lambda *_: None
        self.log: list[list[tuple[Argument, ...]]] = []  # one list for each write, or for each transaction
        self._multi: list[tuple[Argument, ...]] | None = None
        self._clock = 0

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        self.ask("FLUSHALL")
        self.log = []
        self._multi = None
        self._clock = 0

    def ask(self, *command: Argument) -> Any:
        """Runs a command of the test's own, which no fault touches and no log records."""
        self._socket.sendall(hiredis.pack_command(command))
        return self._reply()

    def ask_all(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Several at once."""
        self._socket.sendall(b"".join(map(hiredis.pack_command, commands)))
        return [self._reply() for _ in commands]

    def execute(self, actor: str, command: tuple[Argument, ...]) -> Reply:
        """Runs an actor's command. MULTI is collected and executed as one step at EXEC."""
        name = command[0]
        if name == "MULTI":
            self._multi = []
            return b"OK"
        if self._multi is not None and name != "EXEC":
            self._multi.append(command)
            return b"QUEUED"
        if name == "EXEC":
            queued, self._multi = self._multi or [], None
            before = len(self.log)
            replies = [self._run(actor, each) for each in queued]
            self.log[before:] = [[command for step in self.log[before:] for command in step]]
            return replies
        return self._run(actor, command)

    @property
    def in_transaction(self) -> bool:
        """Whether a MULTI waits for its EXEC."""
        return self._multi is not None

    def lose(self, newest: int) -> None:
        """Crashes and comes back without its newest writes."""
        kept = self.log[: max(0, len(self.log) - newest)]
        self.ask("FLUSHALL")
        commands = [command for step in kept for command in step]
        if commands:
            self.ask_all(*commands)
        self.log = kept

    def _run(self, actor: str, command: tuple[Argument, ...]) -> Reply:
        sent = command
        if command[0] == "XADD" and command[2] == "*":
            # Ids as a clock makes them, without the clock: a schedule must go the same way each time. None comes twice, also
            # not after the store lost the first.
            self._clock += 1
            sent = (*command[:2], f"{self._clock}-0", *command[3:])
        if command[0] == "EVALSHA" and command[1] in self.scripts:
            sent = ("EVAL", self.scripts[str(command[1])], *command[2:])
        reply = self.ask(*sent)
        if command[0] in _WRITES and not isinstance(reply, hiredis.ReplyError) and reply is not None:
            self.log.append([sent])
            self.on_write(actor, command, reply)
        return reply

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the model's server is gone")
            self._reader.feed(data)
        return reply
