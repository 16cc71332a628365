"""Commands over the raw link, and over redis-py while it is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, ResponseError

from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.valkey.asking import ask
from streamway.valkey.link import Link
from tests.support.valkey_server import ValkeyServer

COMMANDS = [
    ("HSET", "h", "a", "1", "b", b"\xff\x00"),
    ("PEXPIRE", "h", 60_000),
    ("HMGET", "h", "a", "b", "c"),
    ("GET", "no"),
]
REPLIES = [2, 1, [b"1", b"\xff\x00", None], None]


@pytest.fixture
async def link(valkey_server: ValkeyServer) -> AsyncIterator[Link]:
    async with TaskScope("test") as scope:
        made = Link(valkey_server.url, SystemClock())
        scope.spawn(made.run(), "link")
        await made.session()
        yield made


async def test_both_ways_give_the_same_replies(valkey: Redis, link: Link, valkey_server: ValkeyServer) -> None:
    down = Link(valkey_server.url, SystemClock())
    for way in (link, None, down):
        await valkey.delete("h")
        replies = await ask(valkey, way, COMMANDS)
        assert [int(reply) if isinstance(reply, bool) else reply for reply in replies] == REPLIES
        assert 0 < await valkey.pttl("h") <= 60_000


async def test_nothing_is_asked_at_once(valkey: Redis, link: Link) -> None:
    assert await ask(valkey, link, []) == []
    assert await ask(valkey, None, []) == []


async def test_a_refusal_is_one_whichever_way(valkey: Redis, link: Link) -> None:
    await valkey.set("text", "t")
    for way in (link, None):
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            await ask(valkey, way, [("GET", "text"), ("HGET", "text", "a")])
    assert await ask(valkey, link, [("GET", "text")]) == [b"t"]


async def test_a_link_that_breaks_in_the_middle_is_an_error_and_nothing_is_sent_twice(
    valkey: Redis, link: Link
) -> None:
    session = await link.session()
    await valkey.delete("count")

    asking = asyncio.ensure_future(ask(valkey, link, [("INCR", "count")]))
    await asyncio.sleep(0)
    # It is on its way, and its reply is not read any more.
    session.flush()
    session.abort()
    with pytest.raises(ConnectionError):
        await asking
    await asyncio.sleep(0.1)
    assert (await valkey.get("count")) in (None, b"1")
