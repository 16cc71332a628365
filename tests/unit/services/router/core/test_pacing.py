"""How fast a stored answer comes again."""

from __future__ import annotations

import pytest

from services.router.core.pacing import gaps
from streamway.v1 import common_pb2


def pieces(*offsets_ms: int) -> list[common_pb2.Event]:
    return [common_pb2.Event(offset_ms=offset) for offset in offsets_ms]


def test_each_piece_comes_as_long_after_the_one_before_as_it_was_made_but_at_most_20_ms() -> None:
    assert list(gaps(pieces(500, 505, 505, 5000, 5012))) == pytest.approx([0, 0.005, 0, 0.02, 0.012])


def test_an_entry_without_times_or_with_times_that_go_back_waits_for_nothing() -> None:
    assert list(gaps(pieces(0, 0, 0))) == [0, 0, 0]
    assert list(gaps(pieces(10, 5, 3))) == [0, 0, 0]
    assert list(gaps([])) == []


def test_after_half_a_minute_the_rest_comes_at_once() -> None:
    waits = list(gaps(pieces(*range(0, 3_000_000, 1000))))
    assert sum(waits) == pytest.approx(30)
    assert waits[-1] == 0
