"""The record of a generation, as far as workers read and write it. Routers write it with the task (`lanes.writer`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from streamway.lanes.writer import RECORD_TTL_MS
from streamway.v1.common_pb2 import Durability
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

# Only the worker that has a generation says where it went: whoever took it over meanwhile has said so itself.
_GIVE: Final = """
if redis.call('HGET', KEYS[1], 'worker') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'worker', ARGV[2], 'state', 'queued')
return 1
"""


class Standing(NamedTuple):
    """Where a generation stands. `state` is empty where there is no record; `durable`: it has, or had, a response channel."""

    state: str
    worker: str
    durable: bool


async def standings_of(valkey: Valkey, generations: Sequence[str]) -> list[Standing]:
    """Raises RedisError."""
    async with valkey.pipeline(transaction=False) as pipe:
        for generation in generations:
            pipe.hmget(keys.generation(generation), "state", "worker", "durability")
        rows = await pipe.execute()
    found: list[Standing] = []
    for row in rows:
        state, worker, durability = ((value or b"").decode() for value in row)
        durable = durability.isdigit() and int(durability) != Durability.DURABILITY_OFF
        found.append(Standing(state, worker, durable))
    return found


async def models_of(valkey: Valkey, generations: Sequence[str]) -> list[str]:
    """The model of each generation; empty where there is no record. Raises RedisError."""
    async with valkey.pipeline(transaction=False) as pipe:
        for generation in generations:
            pipe.hget(keys.generation(generation), "model")
        rows = await pipe.execute()
    return [(model or b"").decode() for model in rows]


async def keep_records(valkey: Valkey, generations: Sequence[str]) -> None:
    """Makes the records of what still runs outlive a takeover: a task without its request can't be run. Those of generations
    that follow it are kept too: their readers come back under their own ids. Raises RedisError."""
    async with valkey.pipeline(transaction=False) as pipe:
        for generation in generations:
            pipe.pexpire(keys.generation(generation), RECORD_TTL_MS)
            pipe.smembers(keys.followers(generation))
        replies = await pipe.execute()
    followed = {
        generation: followers for generation, followers in zip(generations, replies[1::2], strict=True) if followers
    }
    if not followed:
        return
    async with valkey.pipeline(transaction=False) as pipe:
        for generation, followers in followed.items():
            pipe.pexpire(keys.followers(generation), RECORD_TTL_MS)
            for follower in followers:
                pipe.pexpire(keys.generation(follower.decode()), RECORD_TTL_MS)
        await pipe.execute()


async def give_away(valkey: Valkey, generation: str, worker: str, to: str) -> None:
    """Says that a generation of `worker` waits for `to` now, "" for whoever takes it from a pool. Raises RedisError."""
    reply: Any = valkey.eval(_GIVE, 1, keys.generation(generation), worker, to)
    await reply
