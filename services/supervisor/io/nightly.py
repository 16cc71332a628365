"""Prunes each night."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from datetime import time as time_of_day
from typing import Any, Final

from redis.exceptions import RedisError

from services.supervisor.core.nightly import next_run
from services.supervisor.io.pruning import Freed, prune_all
from streamway.runtime.start import StartError

# A clock that is set, or a machine that slept, is noticed within so long.
_LOOK_S: Final = 30.0


class Nightly:
    """Runs until cancelled. `cache` are the effective settings of the cache, `tell` takes a line for people."""

    def __init__(
        self,
        at: time_of_day,
        valkey_url: str,
        cache: Mapping[str, Any],
        tell: Callable[[str], object],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._at = at
        self._valkey_url = valkey_url
        self._cache = cache
        self._tell = tell
        self._now = now

    async def run(self) -> None:
        """One run each night. One that fails is told and left to the next night."""
        due = self._due()
        while True:
            left_s = due - self._now()
            if left_s <= 0:
                await self.once()
                due = self._due()
            else:
                await asyncio.sleep(min(left_s, _LOOK_S))

    def _due(self) -> float:
        now = datetime.fromtimestamp(self._now())  # noqa: DTZ006 - local time, as people read it
        return next_run(self._at, now).timestamp()

    async def once(self) -> None:
        """Prunes now."""
        try:
            freed = await prune_all(self._valkey_url, self._cache, dry=False)
        except (RedisError, StartError, OSError) as problem:
            self._tell(f"not pruned ({type(problem).__name__}); tried again tomorrow, or by `streamway prune`")
        else:
            self._tell(summary(freed))


def summary(freed: list[Freed]) -> str:
    """One line."""
    size_bytes = sum(each.size_bytes for each in freed)
    said = ", ".join(f"{each.number} {each.what}" for each in freed if each.number)
    return f"pruned {size_bytes:,} bytes: {said}" if said else "pruned: there was nothing to free"
