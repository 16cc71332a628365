"""What the journal needs of a connection: replies in order, and to know when it broke.

The clients of redis-py repeat a command on a new connection by themselves. The journal must not: what was read or confirmed
before a break may be gone after it, because the store may have restarted without its newest second. So each procedure runs
on one *session*, one unbroken connection, and starts over on the next when that one is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

# bytes, int, None, a list of replies, or hiredis.ReplyError.
Reply = Any
Argument = str | bytes | int


class LinkLost(Exception):
    """The connection broke before the reply came: the command may have been executed, or may be executed later."""


class StoreRefused(Exception):
    """The store answered with an error. The message is the store's own."""


class Session(Protocol):
    """One unbroken connection. Commands are executed in the order in which they were sent."""

    @property
    def alive(self) -> bool:
        """False once the connection is known to be broken; it never comes back."""
        ...

    def send(self, command: Sequence[Argument], on_reply: Callable[[Reply], None]) -> None:
        """Sends without waiting. After a break `on_reply` is not called; on a dead session nothing happens."""
        ...

    def send_packed(self, packed: bytes, on_reply: Callable[[Reply], None]) -> None:
        """The same for one whole command that is bytes already."""
        ...

    def send_group(self, packed: bytes, on_replies: Sequence[Callable[[Reply], None]]) -> None:
        """The same for several whole commands, each with its own callable."""
        ...

    async def call(self, *command: Argument) -> Reply:
        """Sends and waits. Raises LinkLost or StoreRefused."""
        ...

    async def call_group(self, packed: bytes, count: int) -> list[Reply]:
        """Sends several whole commands that are bytes already, and waits for all replies. Raises LinkLost or StoreRefused."""
        ...


class Sessions(Protocol):
    """Where sessions come from."""

    async def session(self) -> Session:
        """The current connection; waits while there is none."""
        ...
