"""Valkey is stopped and started again under load, in a whole mesh; with its data, and without."""

from __future__ import annotations

import pytest

from services.supervisor.chaos.mesh import own_mesh
from services.supervisor.chaos.runner import Runner
from services.supervisor.core.rounds import OUTAGES
from services.supervisor.core.verdict import Row

pytestmark = pytest.mark.timeout(300)


async def test_a_store_that_stops_and_comes_back_costs_no_stream_a_token() -> None:
    """`relaxed` goes on and `strict` stands still; what is asked for meanwhile goes past the store, and afterwards into it.

    Where the store comes back empty, `strict` ends and says so; `relaxed` still goes on.
    """
    async with own_mesh() as mesh:
        runner = Runner(mesh, "simulated")
        rows: dict[tuple[str, str], Row] = {}
        for round_ in OUTAGES:
            row = await runner.run(round_)
            assert row.clean, row
            rows[round_.deed, round_.durability] = row
    for row in rows.values():
        assert row.live
        assert row.hit == row.live
        # One was asked for while the store was away, one when it was back: each was told the truth, or the row is not clean.
        assert row.streams == OUTAGES[0].streams + 2
    assert rows["stop", "relaxed"].not_durable
    assert (rows["stop", "strict"].next_token_most_s or 0) > 2, "strict waits for the store"
    assert (rows["stop", "strict"].ended, rows["empty", "relaxed"].ended) == (0, 0)
    assert rows["empty", "strict"].ended == rows["empty", "strict"].live
