"""One timer for all heartbeats."""

from __future__ import annotations

import asyncio
import itertools

from services.edge.io.heartbeats import HeartbeatWheel
from tests.support.virtual_time import in_virtual_time


class Beaten:
    def __init__(self) -> None:
        self.times: list[float] = []

    def beat(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


@in_virtual_time
async def test_every_connection_is_beaten_once_a_turn_and_never_later_than_the_period() -> None:
    wheel = HeartbeatWheel(15.0)
    connections, added = list[Beaten](), list[float]()
    for _ in range(20):
        connections.append(Beaten())
        added.append(asyncio.get_running_loop().time())
        wheel.add(connections[-1])
        await asyncio.sleep(0.5)
    await asyncio.sleep(35)
    wheel.close()
    for connection, since in zip(connections, added, strict=True):
        assert len(connection.times) in (2, 3)
        for before, beat in itertools.pairwise([since, *connection.times]):
            assert 13.5 < beat - before <= 15.0


@in_virtual_time
async def test_who_is_removed_is_not_beaten_again() -> None:
    wheel = HeartbeatWheel(0.1)
    connection = Beaten()
    wheel.add(connection)
    wheel.remove(connection)
    wheel.remove(connection)
    await asyncio.sleep(0.2)
    wheel.close()
    assert connection.times == []
    assert len(wheel) == 0
