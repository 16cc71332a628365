"""Lanes on a real Valkey."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from streamway.lanes import (
    LaneReader,
    Standing,
    TakenTask,
    TaskCopy,
    add_generation,
    give_away,
    keep_records,
    models_of,
    own_lanes,
    pool_lanes,
    request_of,
    standings_of,
)
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.connection import blocking_client
from tests.support.valkey_server import ValkeyServer

INTERACTIVE = keys.lane("w", "gold")


@pytest.fixture
async def blocking(valkey_server: ValkeyServer) -> AsyncIterator[Redis]:
    client = blocking_client(valkey_server.url)
    yield client
    await client.aclose()


@pytest.fixture
async def reader(valkey: Redis, blocking: Redis) -> LaneReader:
    made = LaneReader(valkey, blocking, "w", own_lanes("w"))
    await made.open()
    return made


async def add(
    valkey: Redis, prompt: str, priority: int = 0, tier: common_pb2.Tier.ValueType = common_pb2.TIER_UNSPECIFIED
) -> str:
    request = common_pb2.GenerationRequest(
        generation=new_generation_id(),
        priority=priority,
        entitlement=common_pb2.Entitlement(tier=tier),
        messages=[common_pb2.Message(role="user", content=prompt)],
    )
    await add_generation(valkey, request, "w", TaskCopy(request.generation, 1, "ref"), 1234)
    return request.generation


def each(most: int) -> dict[keys.TaskClass, int]:
    return dict.fromkeys(keys.CLASSES, most)


def ids(tasks: list[TakenTask]) -> list[str]:
    return [task.copy.generation for task in tasks]


async def test_what_was_added_before_the_group_was_made_is_taken(valkey: Redis, blocking: Redis) -> None:
    added = [await add(valkey, str(number)) for number in range(3)]
    reader = LaneReader(valkey, blocking, "w", own_lanes("w"))
    await reader.open()
    await reader.open()
    assert ids(await reader.take(each(10))) == added


async def test_no_more_of_a_class_are_taken_than_asked_for_and_the_higher_class_comes_first(
    valkey: Redis, reader: LaneReader
) -> None:
    bulk = [await add(valkey, str(number), priority=-1) for number in range(3)]
    silver = [await add(valkey, str(number), tier=common_pb2.TIER_SILVER) for number in range(2)]
    gold = [await add(valkey, str(number)) for number in range(3)]
    tasks = await reader.take({"gold": 2, "silver": 9, "bulk": 1})
    assert ids(tasks) == gold[:2] + silver + bulk[:1]
    assert [task.class_ for task in tasks] == ["gold", "gold", "silver", "silver", "bulk"]
    assert await reader.take({"gold": 0, "bronze": 5}) == []
    assert await reader.take({}) == []
    assert ids(await reader.take(each(9))) == gold[2:] + bulk[1:]
    assert await reader.length() == 8


async def test_waiting_takes_nothing_and_ends_when_something_comes(valkey: Redis, reader: LaneReader) -> None:
    begun = time.monotonic()
    waiting = asyncio.get_running_loop().create_task(reader.wait(60_000))
    await asyncio.sleep(0.1)
    added = await add(valkey, "x", priority=-1)
    await waiting
    assert time.monotonic() - begun < 30
    assert (await valkey.xpending(keys.lane("w", "bulk"), keys.LANE_GROUP))["pending"] == 0
    assert ids(await reader.take(each(1))) == [added]


async def test_waiting_ends_after_its_time(reader: LaneReader) -> None:
    begun = time.monotonic()
    await reader.wait(100)
    assert 0.05 < time.monotonic() - begun < 20


async def test_waiting_does_not_end_at_once_for_what_is_taken_and_not_finished(
    valkey: Redis, reader: LaneReader
) -> None:
    await add(valkey, "x")
    await reader.take(each(1))
    begun = time.monotonic()
    await reader.wait(200)
    assert time.monotonic() - begun > 0.15


async def test_a_finished_task_is_neither_pending_nor_in_the_lane(valkey: Redis, reader: LaneReader) -> None:
    for number in range(3):
        await add(valkey, str(number))
    await add(valkey, "bulk", priority=-9)
    tasks = await reader.take(each(9))
    await reader.finish(tasks[1:])
    assert ids(await reader.own_pending()) == ids(tasks[:1])
    assert await reader.length() == 1
    await reader.finish(tasks)
    assert await reader.own_pending() == []
    assert await reader.length() == 0


async def test_more_pending_tasks_than_a_page_are_all_found(valkey: Redis, reader: LaneReader) -> None:
    added = [await add(valkey, str(number)) for number in range(230)]
    await reader.take(each(230))
    assert ids(await reader.own_pending()) == added


async def test_what_is_no_task_or_was_deleted_while_pending_is_removed(valkey: Redis, reader: LaneReader) -> None:
    await valkey.xadd(INTERACTIVE, {"strange": "1"})
    good = await add(valkey, "x")
    deleted = await add(valkey, "y")
    tasks = await reader.take(each(9))
    assert ids(tasks) == [good, deleted]
    await valkey.xdel(INTERACTIVE, tasks[1].entry)
    assert ids(await reader.own_pending()) == [good]
    pending = await valkey.xpending(INTERACTIVE, keys.LANE_GROUP)
    assert pending["pending"] == 1


async def test_a_renewed_lease_is_young_and_counts_no_delivery(valkey: Redis, reader: LaneReader) -> None:
    await add(valkey, "x")
    tasks = await reader.take(each(1))
    await asyncio.sleep(0.2)
    begun = time.monotonic()
    await reader.renew(tasks)
    (row,) = await valkey.xpending_range(INTERACTIVE, keys.LANE_GROUP, "-", "+", 10)
    # Not older than the renewal; without it, older by the sleep.
    assert row["time_since_delivered"] <= (time.monotonic() - begun) * 1000 + 100
    assert row["times_delivered"] == 1
    await reader.renew([])


async def test_the_record_of_a_task_holds_its_request(valkey: Redis, reader: LaneReader) -> None:
    added = await add(valkey, "hello")
    damaged = new_generation_id()
    await valkey.hset(keys.generation(damaged), mapping={"request": b"\xff", "state": "queued", "created_ms": 1})
    found, damaged_record, missing = await request_of(valkey, [added, damaged, new_generation_id()])
    assert found is not None
    assert found[0].messages[0].content == "hello"
    assert found[1:] == ("queued", 1234)
    assert damaged_record is None
    assert missing is None
    assert 0 < await valkey.pttl(keys.generation(added)) <= 600_000


async def test_a_pool_is_shared_and_each_task_goes_to_one_worker(valkey: Redis, blocking: Redis) -> None:
    readers = [LaneReader(valkey, blocking, name, pool_lanes(["m", "n"])) for name in ("a", "b")]
    for reader in readers:
        await reader.open()
    for model, number in (("m", 0), ("n", 1), ("m", 2)):
        await valkey.xadd(keys.pool(model, "gold"), {"generation": f"g{number}", "attempt": 1, "ref": "r"})
    first, second = await readers[0].take(each(2)), await readers[1].take(each(9))
    assert sorted(ids(first) + ids(second)) == ["g0", "g1", "g2"]
    assert ids(await readers[1].own_pending()) == ids(second)


async def test_a_record_says_where_a_generation_stands_and_only_its_worker_gives_it_away(valkey: Redis) -> None:
    request = common_pb2.GenerationRequest(
        generation=new_generation_id(), model="m", durability=common_pb2.DURABILITY_STRICT
    )
    id_ = request.generation
    assert await standings_of(valkey, [id_]) == [Standing("", "", False)]
    await add_generation(valkey, request, "w", TaskCopy(id_, 1, "ref"), 1234)
    assert await standings_of(valkey, [id_]) == [Standing("queued", "w", True)]
    assert await models_of(valkey, [id_, "unknown"]) == ["m", ""]
    await give_away(valkey, id_, "somebody else", "x")
    assert (await standings_of(valkey, [id_]))[0].worker == "w"
    await valkey.hset(keys.generation(id_), "state", "running")
    await give_away(valkey, id_, "w", "")
    assert await standings_of(valkey, [id_]) == [Standing("queued", "", True)]
    await valkey.pexpire(keys.generation(id_), 1000)
    await keep_records(valkey, [id_])
    assert await valkey.pttl(keys.generation(id_)) > 100_000
