"""How many answers a tenant, and each of the users it names, may have stored: a flood stores no more than that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.cache.core.recent import Recent

_MINUTE_S: Final = 60.0
# Buckets that are kept; one that is forgotten is full when it comes back.
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class InsertLimits:
    """Answers a minute, as many at once; 0: no limit."""

    tenant: int
    user: int


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class Inserts:
    """Buckets that fill within a minute. `now` is monotonic seconds."""

    def __init__(self, limits: InsertLimits) -> None:
        self._limits = limits
        self._buckets: Recent[tuple[str, str], _Bucket] = Recent(_MOST)
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

    def _filled(self, key: tuple[str, str], limit: int, now: float) -> _Bucket:
        bucket = self._buckets.get(key) or self._buckets.put(key, _Bucket(limit, now))
        bucket.level = min(limit, bucket.level + max(0.0, now - bucket.at) * limit / _MINUTE_S)
        bucket.at = now
        return bucket
