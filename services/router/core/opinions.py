"""How much feedback each tenant may give."""

from __future__ import annotations

from streamway.errors import TooMuchFeedback
from streamway.quota.bucket import Bucket
from streamway.quota.limits import MINUTE_MS
from streamway.runtime.recent import Recent


class Opinions:
    """A bucket for each tenant: `per_minute` opinions at once, and as many again in a minute.

    At most `most_tenants` are remembered; the one that has been silent longest is forgotten, and begins with a full bucket.
    """

    def __init__(self, per_minute: int, most_tenants: int = 10_000) -> None:
        self._per_minute = per_minute
        self._buckets: Recent[str, Bucket] = Recent(most_tenants)

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, tenant: str, now: float) -> None:
        """One more opinion, at `now` in seconds. Raises TooMuchFeedback; that one does not count."""
        now_ms = now * 1000
        bucket = self._buckets.get(tenant) or self._buckets.put(tenant, Bucket(self._per_minute, now_ms))
        left = bucket.refill(self._per_minute, now_ms)
        if left < 1:
            raise TooMuchFeedback(tenant, self._per_minute, (1 - left) * MINUTE_MS / self._per_minute / 1000)
        bucket.level = left - 1
