"""What routers tell each other about sessions that are not at home, so that whoever gets the next turn finds their KV.

sw:session:{tenant/0123456789abcdef}  hash   place:<model> → "<worker> <home> <tokens> <Unix ms>"; expires with the KV

Written off the path, and only for sessions away from home or just back; read once for a session that is unknown here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from services.router.core.decision import Wanted
from services.router.core.patience import Patience
from services.router.core.sessions import Stay
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import LinkLost, Reply, StoreRefused

_FIELD: Final = "place:"
# Of one that is forgotten it is not noted that it came home: another router may look for it where it was once.
_MOST_NOTED: Final = 50_000


class SessionNotes:
    """Reads and writes the notes. `budget_s`: how long a decision waits for one; 0: it never does."""

    def __init__(self, link: Link, clock: Clock, *, ttl_s: float, budget_s: float) -> None:
        self._link = link
        self._clock = clock
        self._ttl_s = ttl_s
        self._budget_s = budget_s
        self._patience = Patience()
        # Sessions whose note says that they are away.
        self._noted: dict[tuple[str, str, str], float] = {}

    async def recall(self, wanted: Wanted) -> Stay | None:
        """What another router noted. None: nothing, or it did not come in time. Never raises."""
        now, link = self._clock.monotonic(), self._link.current
        if not self._budget_s or link is None or not self._patience.allows(now):
            return None
        try:
            async with asyncio.timeout(self._budget_s):
                found = await link.call("HGET", keys.session(wanted.tenant, wanted.session), _FIELD + wanted.model)
        except TimeoutError:
            self._patience.late(now)
            return None
        except (LinkLost, StoreRefused):
            return None
        self._patience.answered()
        return self._parse(found) if found is not None else None

    def note(self, wanted: Wanted, stay: Stay | None) -> None:
        """Has it noted where a session is, unless it is at home and always was. Returns at once."""
        if stay is None:
            return
        name, now = (wanted.tenant, wanted.model, wanted.session), self._clock.monotonic()
        if stay.away:
            self._noted.pop(name, None)  # to the end
            self._noted[name] = now
            self._forget(now)
        elif self._noted.pop(name, None) is None:
            return
        link = self._link.current
        if link is None:
            return
        key = keys.session(wanted.tenant, wanted.session)
        told = f"{stay.last} {stay.home} {stay.tokens} {int(self._clock.unix() * 1000)}"
        ttl_ms = int(self._ttl_s * 1000)
        link.send(("HSET", key, _FIELD + wanted.model, told), _ignore)
        # What else is kept of the session may have to live longer.
        link.send(("PEXPIRE", key, ttl_ms, "NX"), _ignore)
        link.send(("PEXPIRE", key, ttl_ms, "GT"), _ignore)

    def _forget(self, now: float) -> None:
        while self._noted:
            oldest = next(iter(self._noted))
            if len(self._noted) <= _MOST_NOTED and now - self._noted[oldest] < self._ttl_s:
                return
            del self._noted[oldest]

    def _parse(self, found: bytes) -> Stay | None:
        """None for what is no note of ours, or too old."""
        try:
            worker, home, tokens, at_ms = found.decode().split(" ")
            age_s = max(0.0, self._clock.unix() - int(at_ms) / 1000)
            stay = Stay(home, worker, int(tokens), self._clock.monotonic() - age_s)
        except ValueError:
            return None
        return stay if age_s < self._ttl_s else None


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""
