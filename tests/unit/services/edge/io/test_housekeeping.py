"""When memory is given back."""

from __future__ import annotations

import asyncio

import pytest

from services.edge.io import housekeeping
from services.edge.io.housekeeping import Housekeeper


async def test_it_tidies_when_many_have_left_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_LOOK_S", 0.02)
    connections = 0
    keeper = Housekeeper(lambda: connections)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keeper.run())
        tidied = []
        for connections in (900, 0, 3000, 1600, 1400, 1300, 0):  # noqa: B007 — the lambda above reads it
            await asyncio.sleep(0.1)
            tidied.append(keeper.tidied)
        task.cancel()
    assert tidied == [0, 0, 0, 0, 1, 1, 2]
