"""One timer for all heartbeats."""

from __future__ import annotations

import asyncio

from services.edge.io.heartbeats import HeartbeatWheel


class Beaten:
    def __init__(self) -> None:
        self.times: list[float] = []

    def beat(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


async def test_every_connection_is_beaten_once_a_turn_and_never_later_than_the_period() -> None:
    wheel = HeartbeatWheel(0.3)
    began = asyncio.get_running_loop().time()
    connections = []
    for _ in range(20):
        connections.append(Beaten())
        wheel.add(connections[-1])
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.7)
    wheel.close()
    for connection in connections:
        assert len(connection.times) in (2, 3)
    assert min(connection.times[0] for connection in connections) - began > 0.2


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
