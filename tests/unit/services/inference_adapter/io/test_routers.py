"""What a worker knows of the routers."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from services.inference_adapter.io.routers import Routers
from streamway.runtime.clock import SystemClock
from streamway.valkey.leases import Lease


class LateClock(SystemClock):
    """The system's, some seconds later."""

    late_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.late_s


async def lease(valkey: Redis, id_: str, generations: str | None) -> None:
    fields = {"address": "x:1"} | ({"generations": generations} if generations is not None else {})
    await Lease(valkey, SystemClock(), "router", id_, lambda: fields, 60).renew()


async def test_generations_of_all_routers_are_added_and_count_for_five_seconds(valkey: Redis) -> None:
    clock = LateClock()
    routers = Routers(valkey, clock)
    assert (await routers.look(), routers.generations()) == (False, 0)
    await lease(valkey, "a", "300")
    await lease(valkey, "b", "201")
    await lease(valkey, "older", None)
    assert (await routers.look(), routers.generations()) == (True, 501)
    clock.late_s = 6.0
    assert routers.generations() == 0, "nothing has been read since"


@pytest.mark.parametrize(
    ("said", "believed"), [("-3", 0), ("many", 0), ("", 0), ("9" * 400, 0), ("99999999", 10_000_000)]
)
async def test_a_router_that_says_nonsense_is_believed_within_what_can_be(
    valkey: Redis, said: str, believed: int
) -> None:
    routers = Routers(valkey, SystemClock())
    await lease(valkey, "a", said)
    assert await routers.look()
    assert routers.generations() == believed
