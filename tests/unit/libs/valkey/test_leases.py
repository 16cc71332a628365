from __future__ import annotations

import asyncio
import time

import pytest
from redis.asyncio import Redis

from streamway.runtime.clock import SystemClock
from streamway.valkey import keys
from streamway.valkey.leases import Lease, known_leases, list_leases


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def unix(self) -> float:
        return self.now


async def ended(valkey: Redis, id_: str) -> None:
    """What its expiry does: the server's clock is not the test's to turn."""
    await valkey.delete(keys.lease("worker", id_))


async def test_a_lease_shows_its_fields_until_it_is_released(valkey: Redis) -> None:
    clock, load = SystemClock(), {"running": "0"}
    lease = Lease(valkey, clock, "worker", "a", lambda: {"address": "x:1", **load})
    await lease.renew()
    load["running"] = "7"
    await lease.renew()
    assert await list_leases(valkey, clock, "worker") == {"a": {"address": "x:1", "running": "7"}}
    assert await list_leases(valkey, clock, "router") == {}
    await lease.release()
    assert await list_leases(valkey, clock, "worker") == {}
    assert await valkey.exists(keys.lease("worker", "a")) == 0
    assert await known_leases(valkey, "worker") == {"a": False}


async def test_a_lease_that_is_not_renewed_ends(valkey: Redis) -> None:
    clock = Clock()
    lease = Lease(valkey, clock, "worker", "a", lambda: {"address": "x:1"}, lease_s=3.0)
    await lease.renew()
    assert 0 < await valkey.pttl(keys.lease("worker", "a")) <= 3000
    assert "a" in await list_leases(valkey, clock, "worker")
    await ended(valkey, "a")
    assert await list_leases(valkey, clock, "worker") == {}


@pytest.mark.parametrize("off_s", [-3500.0, -10.0, 10.0, 3500.0])
async def test_clocks_that_are_off_or_jump_end_no_lease_and_keep_none_alive(valkey: Redis, off_s: float) -> None:
    ours, theirs = Clock(), Clock()
    theirs.now += off_s
    await Lease(valkey, theirs, "worker", "a", lambda: {"x": "1"}).renew()
    await Lease(valkey, ours, "worker", "b", lambda: {"x": "1"}).renew()
    for clock in (ours, theirs):
        assert (await list_leases(valkey, clock, "worker")).keys() == {"a", "b"}
    await ended(valkey, "a")
    for clock in (ours, theirs):
        assert (await list_leases(valkey, clock, "worker")).keys() == {"b"}
    # What lay in its lanes can still be found.
    assert await known_leases(valkey, "worker") == {"a": False, "b": True}


async def test_whoever_was_gone_for_an_hour_leaves_the_index(valkey: Redis) -> None:
    clock = Clock()
    await Lease(valkey, clock, "worker", "a", lambda: {"x": "1"}).renew()
    clock.now += 3_500
    await Lease(valkey, clock, "worker", "b", lambda: {"x": "1"}).renew()
    assert await valkey.zrange(keys.lease_index("worker"), 0, -1) == [b"a", b"b"]
    clock.now += 200
    await Lease(valkey, clock, "worker", "b", lambda: {"x": "1"}).renew()
    assert await valkey.zrange(keys.lease_index("worker"), 0, -1) == [b"b"]


async def test_a_held_lease_is_renewed_each_third_of_its_time(valkey: Redis) -> None:
    renewed = list[float]()

    def fields() -> dict[str, str]:
        renewed.append(time.monotonic())
        return {"n": str(len(renewed))}

    lease = Lease(valkey, SystemClock(), "worker", "a", fields, lease_s=0.6)
    holding = asyncio.get_running_loop().create_task(lease.hold())
    async with asyncio.timeout(20):
        while len(renewed) < 5:
            await asyncio.sleep(0.02)
    assert renewed[-1] - renewed[0] >= 0.7
    assert "a" in await list_leases(valkey, SystemClock(), "worker")
    holding.cancel()
    await asyncio.wait({holding})


async def test_holding_and_releasing_survive_a_store_that_does_not_answer() -> None:
    nowhere = Redis.from_url("unix:///nonexistent/valkey.sock")
    lease = Lease(nowhere, SystemClock(), "worker", "a", lambda: {"x": "1"}, lease_s=0.3)
    holding = asyncio.get_running_loop().create_task(lease.hold())
    await asyncio.sleep(0.4)
    assert not holding.done()
    holding.cancel()
    await asyncio.wait({holding})
    await lease.release()
    await nowhere.aclose()
