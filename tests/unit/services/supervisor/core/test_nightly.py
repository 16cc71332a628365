"""When the night's work is due."""

from __future__ import annotations

from datetime import datetime, time

import pytest
from pydantic import ValidationError

from services.supervisor.core.nightly import next_run, time_of
from services.supervisor.settings import UpSettings


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2026-11-30T01:00", "2026-11-30T03:30"),
        ("2026-11-30T03:30", "2026-12-01T03:30"),
        ("2026-12-31T23:59", "2027-01-01T03:30"),
    ],
)
def test_it_is_due_the_next_time_that_clocks_show_it(now: str, due: str) -> None:
    assert next_run(time(3, 30), datetime.fromisoformat(now)) == datetime.fromisoformat(due)


def test_a_time_is_hours_and_minutes_and_nothing_is_never() -> None:
    assert time_of(UpSettings().prune_at) == time(3, 30)
    assert time_of(UpSettings(prune_at="23:05").prune_at) == time(23, 5)
    assert time_of(UpSettings(prune_at="").prune_at) is None
    for bad in ("24:00", "3:30", "03:60", "night", "03:30 "):
        with pytest.raises(ValidationError):
            UpSettings(prune_at=bad)
