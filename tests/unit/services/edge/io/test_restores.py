"""What a connection tells the store of its generations, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from services.edge.io.generation import Generation
from services.edge.io.restores import Restorable, Restores
from streamway.errors import StoreUnavailable
from streamway.journal.cursor import Cursor
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.valkey import keys
from streamway.valkey.link import Link
from tests.support.valkey_server import ValkeyServer


class Moving:
    """The little of a generation that is looked at."""

    def __init__(self, id_: str = "g") -> None:
        self.id = id_
        self.cursor = Cursor(0, 0)
        self.ended = False


def added(connection: Restorable, *generations: Moving) -> None:
    for generation in generations:
        connection.add(cast("Generation", generation), "q")


def told(connection: Restorable, now: float, *, last: bool = False) -> list[tuple[Any, ...]]:
    return [tuple(command) for command in connection.commands(now, 30.0, last=last)]


@pytest.fixture
async def link(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[Link]:
    made = Link(valkey_server.url, SystemClock())
    async with TaskScope("test") as scope:
        scope.spawn(made.run(), "link")
        await made.session()
        yield made


@pytest.fixture
async def restores(link: Link) -> Restores:
    return Restores(link, 30.0)


async def test_only_what_moved_is_written_and_the_time_to_live_a_few_times_a_grace(restores: Restores) -> None:
    connection, generation = restores.open("acme"), Moving()
    added(connection, generation)
    key = keys.connection(connection.id)
    assert told(connection, 100.0) == [
        ("HSET", key, b"tenant", "acme", "g", "0-0 q"),
        ("PEXPIRE", key, 41_000),
    ]
    assert told(connection, 101.0) == []
    generation.cursor = Cursor(5, 2)
    assert told(connection, 102.0)[0] == ("HSET", key, b"tenant", "acme", "g", "5-2 q")
    assert told(connection, 111.9) == []
    assert told(connection, 112.0) == [("PEXPIRE", key, 41_000)]


async def test_what_has_ended_stays_for_the_grace(restores: Restores) -> None:
    connection, generation, other = restores.open("acme"), Moving(), Moving("h")
    added(connection, generation, other)
    told(connection, 100.0)
    generation.ended, generation.cursor = True, Cursor(5, 9)
    assert "5-9 q" in told(connection, 101.0)[0]
    told(connection, 120.0)
    assert ("HDEL", keys.connection(connection.id), "g") in told(connection, 131.0)
    assert told(connection, 132.0) == []


async def test_the_last_word_leaves_the_grace_from_now_on(restores: Restores) -> None:
    connection = restores.open("acme")
    added(connection, Moving())
    told(connection, 100.0)
    assert told(connection, 109.0, last=True) == [("PEXPIRE", keys.connection(connection.id), 31_000)]


async def test_a_generation_that_was_attached_to_an_earlier_one_has_its_name(restores: Restores) -> None:
    connection, generation = restores.open("acme"), Moving()
    added(connection, generation)
    told(connection, 100.0)
    generation.id = "earlier"
    commands = told(connection, 101.0)
    assert ("HDEL", keys.connection(connection.id), "g") in commands
    assert any("earlier" in command for command in commands if command[0] == "HSET")


async def test_a_store_that_comes_back_empty_is_told_everything_again(restores: Restores) -> None:
    connection = restores.open("acme")
    added(connection, Moving())
    told(connection, 100.0)
    connection.write_again()
    assert told(connection, 101.0)[0][0] == "HSET"


async def test_whose_connection_it_is_counts(restores: Restores, valkey: Redis) -> None:
    await valkey.hset(keys.connection("r"), mapping={"tenant": "acme", "g": "5-3 q 1", "h": "0-1 ", "broken": "x y"})
    assert [(each.generation, each.cursor, each.name) for each in await restores.read("r", "acme")] == [
        ("g", Cursor(5, 3), "q 1"),
        ("h", Cursor(0, 1), ""),
    ]
    assert await restores.read("r", "other") == await restores.read("none", "acme") == []
    assert (await restores.join("r", "acme")).id == "r"
    assert (await restores.join("r", "other")).id != "r"
    assert len((await restores.join("none", "acme")).id) == 32


async def test_without_a_store_a_restore_fails_and_a_join_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.edge.io.restores._STORE_WAIT_S", 0.05)
    alone = Restores(Link("unix:///nowhere/valkey.sock", SystemClock()), 30.0)
    with pytest.raises(StoreUnavailable):
        await alone.read("r", "acme")
    connection = await alone.join("r", "acme")
    assert connection.id != "r"
    added(connection, Moving())
    connection.close()


async def test_a_new_generation_is_told_without_a_look_at_the_others(restores: Restores) -> None:
    looked: list[str] = []

    class Watched(Moving):
        @property
        def cursor(self) -> Cursor:
            looked.append(self.id)
            return Cursor(0, 0)

        @cursor.setter
        def cursor(self, _: Cursor) -> None:
            """It never moves."""

    connection = restores.open("acme")
    added(connection, *(Watched(f"old{number}") for number in range(100)))
    assert len(told(connection, 100.0)[0]) == 4 + 2 * 100
    looked.clear()
    added(connection, Watched("new"))
    key = keys.connection(connection.id)
    assert list(connection.commands(101.0, 30.0, last=False, only=["new"])) == [
        ("HSET", key, b"tenant", "acme", "new", "0-0 q"),
        ("PEXPIRE", key, 41_000),
    ]
    assert looked == ["new"]
    assert list(connection.commands(102.0, 30.0, last=False, only=["new"])) == []
    assert told(connection, 102.0) == []
