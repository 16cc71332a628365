"""When memory is given back."""

from __future__ import annotations

import asyncio

from services.edge.io.housekeeping import Housekeeper
from tests.support.virtual_time import in_virtual_time


@in_virtual_time
async def test_it_tidies_when_many_have_left_and_not_before() -> None:
    connections = 0
    keeper = Housekeeper(lambda: connections)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keeper.run())
        tidied = []
        for connections in (900, 0, 3000, 1600, 1400, 1300, 0):  # noqa: B007 — the lambda above reads it
            await asyncio.sleep(10)
            tidied.append(keeper.tidied)
        task.cancel()
    assert tidied == [0, 0, 0, 0, 1, 1, 2]
