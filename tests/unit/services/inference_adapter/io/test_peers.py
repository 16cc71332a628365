"""Who may take over what a worker gives up."""

from __future__ import annotations

import json

from redis.asyncio import Redis

from services.inference_adapter.io.peers import Peers, lane_for
from streamway.runtime.clock import SystemClock
from streamway.valkey import keys
from streamway.valkey.leases import Lease


async def lease(valkey: Redis, id_: str, free: int, *models: str, **fields: str) -> None:
    told = {
        "models": json.dumps([{"name": model, "context_tokens": 0} for model in models]),
        "window_free": str(free),
        "draining": "0",
        "healthy": "1",
        **fields,
    }
    await Lease(valkey, SystemClock(), "worker", id_, lambda: told, 60).renew()


async def test_the_one_with_the_most_room_is_chosen_until_it_has_no_more_than_the_others(valkey: Redis) -> None:
    await lease(valkey, "me", 99, "m")
    await lease(valkey, "a", 3, "m")
    await lease(valkey, "b", 5, "m", "other")
    await lease(valkey, "c", 50, "other")
    peers = Peers(valkey, SystemClock(), "me")
    assert not peers.serve("m")
    await peers.look()
    assert peers.serve("m")
    assert sorted(peers.choose("m") for _ in range(8)) == ["a"] * 3 + ["b"] * 5
    assert peers.choose("other") == "c"
    assert (peers.choose("unknown"), peers.serve("unknown")) == ("", False)


async def test_one_that_takes_no_work_or_can_not_be_read_is_passed_over(valkey: Redis) -> None:
    await lease(valkey, "draining", 9, "m", draining="1")
    await lease(valkey, "sick", 9, "m", healthy="0")
    await lease(valkey, "strange", 9, "m", models="{")
    peers = Peers(valkey, SystemClock(), "me")
    await peers.look()
    assert not peers.serve("m")


def test_without_a_worker_a_task_goes_to_the_pool_of_its_model() -> None:
    assert lane_for("a", "m", "bulk") == "sw:lane:{a}:bulk"
    assert lane_for("", "m", "silver") == "sw:pool:{m}:silver"


async def test_one_that_has_tried_is_passed_over_and_one_with_an_open_breaker_comes_last(valkey: Redis) -> None:
    await lease(valkey, "tried", 9, "m")
    await lease(valkey, "doubtful", 9, "m")
    await lease(valkey, "well", 5, "m")
    await lease(valkey, "closed-again", 0, "m")
    soon = int(SystemClock().unix() * 1000) + 60_000
    board = {"doubtful gold": f"{soon} 1", "well gold": "1000 1", "closed-again gold": f"-{soon} 1"}
    await valkey.hset(keys.breaker("m"), mapping=board)
    peers = Peers(valkey, SystemClock(), "me")
    await peers.look("m")
    assert [peers.choose("m", {"tried"}) for _ in range(2)] == ["well", "well"]
    assert peers.choose("m", {"tried", "well", "closed-again"}) == "doubtful"
    assert peers.serve("m", {"tried", "well"})
    assert not peers.serve("m", {"tried", "well", "doubtful", "closed-again"})
