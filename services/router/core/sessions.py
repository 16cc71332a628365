"""Where sessions have their KV: a table with a bound and an age."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice


@dataclass(slots=True)
class Stay:
    """One session of one model.

    `home` is what its home was when it was placed last, `last` the worker that had it, with about `tokens` of it in KV.
    `before` is the worker it had before `last`, with `before_tokens`; empty when there was none. Times are seconds of the
    caller's clock.
    """

    home: str
    last: str
    tokens: int
    at: float
    before: str = ""
    before_tokens: int = 0
    before_at: float = 0.0

    @property
    def away(self) -> bool:
        """It is not where its key says."""
        return self.last != self.home


class Sessions:
    """At most `most` stays, each forgotten `ttl_s` after it was placed last: by then its KV has been overwritten."""

    def __init__(self, most: int, ttl_s: float) -> None:
        self._most = most
        self._ttl_s = ttl_s
        self._stays: OrderedDict[tuple[str, str, str], Stay] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stays)

    def find(self, tenant: str, model: str, session: str, now: float) -> Stay | None:
        """Where a session is."""
        stay = self._stays.get((tenant, model, session))
        return stay if stay is not None and now - stay.at < self._ttl_s else None

    def cached(self, stay: Stay | None, worker: str, now: float) -> int:
        """Tokens of a session that a worker has in KV, as far as is known."""
        if stay is None:
            return 0
        if worker == stay.last:
            return stay.tokens
        if worker == stay.before and now - stay.before_at < self._ttl_s:
            return stay.before_tokens
        return 0

    def placed(self, tenant: str, model: str, session: str, home: str, worker: str, tokens: int, now: float) -> Stay:
        """A turn goes to `worker`, which will then have `tokens` of the session."""
        key = (tenant, model, session)
        stay = self._stays.get(key)
        if stay is None:
            stay = self._stays[key] = Stay(home, worker, tokens, now)
        else:
            if worker != stay.last:
                stay.before, stay.before_tokens, stay.before_at = stay.last, stay.tokens, stay.at
            stay.home, stay.last, stay.tokens, stay.at = home, worker, tokens, now
            self._stays.move_to_end(key)
        self._shrink(now)
        return stay

    def learn(self, tenant: str, model: str, session: str, stay: Stay) -> None:
        """What another router knows of a session that is unknown here."""
        self._stays.setdefault((tenant, model, session), stay)
        self._shrink(stay.at)

    def newest(self, most: int) -> list[tuple[str, str, str]]:
        """Tenant, model and key of the sessions that were placed last, the latest first."""
        return list(islice(reversed(self._stays), most))

    def _shrink(self, now: float) -> None:
        stays = self._stays
        while stays:
            oldest = next(iter(stays.values()))
            if len(stays) <= self._most and now - oldest.at < self._ttl_s:
                return
            stays.popitem(last=False)
