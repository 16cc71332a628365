"""When the work of the night is due."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Final

# "HH:MM"; empty: never.
TIME_PATTERN: Final = r"^((?:[01]\d|2[0-3]):[0-5]\d)?$"


def time_of(text: str) -> time | None:
    """The time of day that a setting of that pattern names."""
    return time.fromisoformat(text) if text else None


def next_run(at: time, now: datetime) -> datetime:
    """The first moment behind `now` at which clocks on the wall show `at`. Both are local times without a zone."""
    today = datetime.combine(now.date(), at)
    return today if today > now else today + timedelta(days=1)
