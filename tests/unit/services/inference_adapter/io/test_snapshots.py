from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.io.snapshots import Snapshots
from streamway.runtime.clock import SystemClock
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import Durability


def asked(
    session: str, size: int = 10, durability: Durability.ValueType = Durability.DURABILITY_RELAXED
) -> common_pb2.GenerationRequest:
    message = common_pb2.Message(role="user", content="x" * size)
    return common_pb2.GenerationRequest(session=session, model="m", durability=durability, messages=[message])


def snapshots() -> Snapshots:
    # Nothing listens there.
    return Snapshots(Redis(port=1), None, SystemClock(), "w", ttl_s=60, most_bytes=1000)


def note(to: Snapshots, request: common_pb2.GenerationRequest) -> None:
    to.note(request, Transcript("g", "t", 0.0), None)


async def test_what_waits_for_the_store_is_bounded_in_number_and_in_bytes() -> None:
    made = snapshots()
    for number in range(1000):
        note(made, asked(str(number)))
    assert len(made) == 256
    for number in range(100):
        note(made, asked(f"large {number}", 1024 * 1024))
    before = len(made)
    assert 25 < before < 32
    note(made, asked("too large for anything", 64 * 1024 * 1024))
    assert len(made) == before


async def test_only_the_newest_turn_of_a_session_that_may_leave_traces_waits() -> None:
    made = snapshots()
    for _ in range(3):
        note(made, asked("s"))
    note(made, asked(""))
    note(made, asked("secret", durability=Durability.DURABILITY_OFF))
    assert len(made) == 1


async def test_without_the_store_it_waits_and_the_loop_goes_on() -> None:
    made = snapshots()
    note(made, asked("s"))
    with pytest.raises((RedisError, OSError)):
        await made.write()
    loop = asyncio.ensure_future(made.run())
    await asyncio.sleep(0.4)
    assert not loop.done()
    assert len(made) == 1
    loop.cancel()
    await asyncio.wait({loop})
