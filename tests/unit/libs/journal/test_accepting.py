"""Channel, record and task copy on one connection, over a session written by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
import pytest

from streamway.journal import Entry, Kind
from streamway.journal.accepting import Accepting
from streamway.valkey.session import LinkLost, StoreRefused

ENTRY = Entry(0, 1, 1, Kind.ACCEPTED, b"")
RECORD = [("HSET", "sw:gen:{g}", "state", "queued"), ("PEXPIRE", "sw:gen:{g}", 1000)]
COPY = ("XADD", "sw:lane:{w}:interactive", "*", "generation", "g")


class _Session:
    """A session whose replies are given; the connection is lost where they end."""

    def __init__(self, *replies: Any) -> None:
        self.alive = True
        self.commands: list[str] = []
        self._replies = deque(replies)

    def send(self, command: Sequence[Any], on_reply: Callable[[Any], None]) -> None:
        self.commands.append(str(command[0]))
        if self._replies:
            on_reply(self._replies.popleft())

    async def call(self, *command: Any) -> Any:
        self.commands.append(str(command[0]))
        if not self._replies:
            self.alive = False
            raise LinkLost
        reply = self._replies.popleft()
        if isinstance(reply, Exception):
            raise StoreRefused(str(reply))
        return reply


def _accepting(entries: Sequence[Entry] = (ENTRY,)) -> Accepting:
    return Accepting("g", entries, 1000, "sw:gen:{g}", [*RECORD, COPY])


async def test_the_channel_comes_first_then_the_record_then_the_copy() -> None:
    session = _Session(1, 8, 1, b"1-0")
    assert await _accepting()(session)
    assert session.commands == ["EVALSHA", "HSET", "PEXPIRE", "XADD"]


async def test_a_channel_that_was_there_gets_nothing() -> None:
    accepting, session = _accepting(), _Session(0)
    assert not await accepting(session)
    assert session.commands == ["EVALSHA"]
    assert not accepting.sent


async def test_a_copy_follows_only_a_channel_of_its_own_connection() -> None:
    accepting = _accepting()
    for lost in (_Session(), _Session(1)):
        with pytest.raises(LinkLost):
            await accepting(lost)
    assert accepting.sent
    emptied = _Session(1, 8, 1, b"1-0")
    assert await accepting(emptied)
    assert emptied.commands == ["EVALSHA", "HSET", "PEXPIRE", "XADD"]


async def test_a_record_that_was_written_is_left_as_it_is() -> None:
    accepting = _accepting()
    with pytest.raises(LinkLost):
        await accepting(_Session(1, 8, 1))
    kept = _Session(0, 1, b"2-0")
    assert await accepting(kept)
    assert kept.commands == ["EVALSHA", "EXISTS", "XADD"]
    accepting = _accepting()
    with pytest.raises(LinkLost):
        await accepting(_Session())
    half = _Session(0, 0, 8, 1, b"2-0")
    assert await accepting(half)
    assert half.commands == ["EVALSHA", "EXISTS", "HSET", "PEXPIRE", "XADD"]


async def test_without_a_channel_a_copy_is_sent_once() -> None:
    accepting = _accepting(())
    assert not accepting.repeatable
    with pytest.raises(LinkLost):
        await accepting(_Session(8, 1))
    again = _Session(8, 1, b"1-0")
    with pytest.raises(StoreRefused):
        await accepting(again)
    assert again.commands == []


async def test_a_record_the_store_refuses_is_told() -> None:
    with pytest.raises(StoreRefused, match="OOM"):
        await _accepting()(_Session(1, hiredis.ReplyError("OOM command not allowed"), 1, b"1-0"))
