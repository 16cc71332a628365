"""How much feedback each tenant may give."""

from __future__ import annotations

from collections import OrderedDict

from streamway.errors import TooMuchFeedback

_MINUTE_S = 60.0


class Opinions:
    """A bucket for each tenant: `per_minute` opinions at once, and as many again in a minute.

    At most `most_tenants` are remembered; the one that has been silent longest is forgotten, and begins with a full bucket.
    """

    def __init__(self, per_minute: int, most_tenants: int = 10_000) -> None:
        self._per_minute = per_minute
        self._most_tenants = most_tenants
        # Opinions left, and when that was so, in seconds.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, tenant: str, now: float) -> None:
        """One more opinion, at `now` in seconds. Raises TooMuchFeedback; that one does not count."""
        left, at = self._left.get(tenant, (float(self._per_minute), now))
        per_s = self._per_minute / _MINUTE_S
        left = min(float(self._per_minute), left + max(0.0, now - at) * per_s)
        if left < 1:
            raise TooMuchFeedback(tenant, self._per_minute, (1 - left) / per_s)
        self._left[tenant] = (left - 1, now)
        self._left.move_to_end(tenant)
        if len(self._left) > self._most_tenants:
            self._left.popitem(last=False)
