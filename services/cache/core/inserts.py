"""How many answers a tenant, and each of the users it names, may have stored: a flood stores no more than that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streamway.quota.bucket import Bucket
from streamway.runtime.recent import Recent

# Buckets that are kept; one that is forgotten is full when it comes back.
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class InsertLimits:
    """Answers a minute, as many at once; 0: no limit."""

    tenant: int
    user: int


class Inserts:
    """Buckets that fill within a minute. `now` is monotonic seconds."""

    def __init__(self, limits: InsertLimits) -> None:
        self._limits = limits
        self._buckets: Recent[tuple[str, str], Bucket] = Recent(_MOST)
        self.refused = 0

    def allows(self, tenant: str, user: str, now: float) -> bool:
        """Takes one from the tenant's bucket, and from the user's if one is named; False, and counted, if either is empty."""
        levels = [(("", tenant), self._limits.tenant)]
        if user:
            levels.append(((user, tenant), self._limits.user))
        buckets = [self._filled(key, limit, now) for key, limit in levels if limit]
        if any(bucket.level < 1 for bucket in buckets):
            self.refused += 1
            return False
        for bucket in buckets:
            bucket.level -= 1
        return True

    def _filled(self, key: tuple[str, str], limit: int, now: float) -> Bucket:
        now_ms = now * 1000
        bucket = self._buckets.get(key) or self._buckets.put(key, Bucket(limit, now_ms))
        bucket.refill(limit, now_ms)
        return bucket
