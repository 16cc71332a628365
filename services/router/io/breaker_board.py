"""The breakers of this router: fed by the ends of generations, shown in metrics, shared with the other routers.

What opens or closes is written at once (`streamway.valkey.breakers`) and read by every router twice a second. Each router sends
probes of its own; those of the first that have shown that a worker is well count for all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from services.router.core.breaker import State
from services.router.core.breakers import Barred, BreakerOptions, Breakers, Call, Spot, Transition
from services.router.core.outcomes import is_failure
from services.router.core.pool import Pool
from services.router.metrics import RouterMetrics
from streamway.errors import StreamwayError
from streamway.runtime.clock import Clock
from streamway.tenancy import TierName
from streamway.valkey import breakers, keys
from streamway.valkey.link import Link
from streamway.valkey.script import Script
from streamway.valkey.session import LinkLost, Reply, StoreRefused

_log = structlog.get_logger("router")

# What opens or closes is known everywhere within a second.
_ROUND_S: Final = 0.5
# A closing is not written over a later opening. ARGV: field, closed at (Unix ms), openings, how long to keep it in ms.
_CLOSE: Final = Script("""
local known = redis.call('HGET', KEYS[1], ARGV[1])
local openings = known and tonumber(string.match(known, ' (%d+)$')) or 0
if openings > tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], '-' .. ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
""")
_PATIENCE_S: Final = 1.0
_NAMES: Final = {False: "success", True: "failure", None: "nothing"}


class BreakerBoard:
    """`draw` gives 0 … 1. `models` and `workers` name what there is now; anything else is forgotten."""

    def __init__(
        self,
        options: BreakerOptions,
        link: Link,
        clock: Clock,
        metrics: RouterMetrics,
        draw: Callable[[], float],
        models: Callable[[], set[str]],
        workers: Callable[[], set[str]],
    ) -> None:
        self._breakers = Breakers(options, draw)
        self._kept_ms = int(2 * options.waits.longest_s * (1 + options.waits.jitter) * 1000)
        self._link = link
        self._clock = clock
        self._metrics = metrics
        self._models = models
        self._workers = workers
        # What was read last of each model. A closing counts when it is new: it says nothing of what opened after it.
        self._read: dict[str, dict[bytes, bytes]] = {}

    def barred(self, model: str, tier: TierName, pool: Pool) -> Barred:
        """Whom a request of this tier must not go to."""
        barred = self._breakers.barred(model, tier, pool, self._clock.monotonic())
        if barred.panic:
            self._metrics.panics.labels(tier).inc()
        return barred

    def state(self, worker: str, model: str, tier: TierName) -> State:
        """Of one breaker."""
        return self._breakers.state(Spot(worker, model, tier))

    def placed(self, worker: str, model: str, tier: TierName) -> Call:
        """A request goes there; give what comes back to `ended`."""
        call = self._breakers.placed(Spot(worker, model, tier), self._clock.monotonic())
        self._tell()
        return call

    def finished(self, call: Call) -> None:
        """It has its answer."""
        self._ended(call, False)

    def failed(self, call: Call, error: StreamwayError) -> None:
        """It has ended with this; whether that counts, `core.outcomes` says."""
        self._ended(call, is_failure(error))

    def unknown(self, call: Call) -> None:
        """Nobody will know how it ended, or it was never begun."""
        self._ended(call, None)

    async def run(self) -> None:
        """Reads what others have opened and closed, again and again until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_S)
            await self.round()

    async def round(self) -> None:
        """Once. Without the store each router has only what it has seen itself."""
        for spot in self._breakers.keep_only(self._models(), self._workers()):
            with contextlib.suppress(KeyError):  # it was never shown
                self._metrics.breakers.remove(*spot)
        self._breakers.pass_time(self._clock.monotonic())
        self._tell()
        self._read = {model: read for model, read in self._read.items() if model in self._models()}
        link = self._link.current
        if link is None:
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                for model in self._models():
                    self._learn(model, await link.call("HGETALL", keys.breaker(model)))
        except (TimeoutError, LinkLost, StoreRefused):
            return
        self._tell()

    def _ended(self, call: Call, failed: bool | None) -> None:
        self._metrics.outcomes.labels(_NAMES[failed]).inc()
        self._breakers.ended(call, failed, self._clock.monotonic())
        self._tell()

    def _learn(self, model: str, found: list[bytes]) -> None:
        workers, now, unix_ms = self._workers(), self._clock.monotonic(), self._clock.unix() * 1000
        read = dict(zip(found[::2], found[1::2], strict=True))
        before, self._read[model] = self._read.get(model, {}), read
        for field, told in breakers.read(read):
            if told.worker not in workers:
                continue
            spot = Spot(told.worker, model, told.tier)
            if told.until_ms > unix_ms:
                self._breakers.learn(spot, told.openings, (told.until_ms - unix_ms) / 1000, now)
            elif told.until_ms < 0 and before.get(field) != read[field]:
                self._breakers.learn_closed(spot, told.openings, now)

    def _tell(self) -> None:
        for change in self._breakers.take_transitions():
            spot = change.spot
            self._metrics.breakers.labels(*spot).set(change.after)
            by = "others" if change.learned else "us"
            self._metrics.breaker_transitions.labels(
                spot.tier, change.before.name.lower(), change.after.name.lower(), by
            ).inc()
            _log.info(
                "breaker",
                worker=spot.worker,
                model=spot.model,
                tier=spot.tier,
                state=change.after.name.lower(),
                wait_s=round(change.wait_s, 1),
                by=by,
            )
            if not change.learned and change.after is not State.HALF_OPEN:
                self._share(change)

    def _share(self, change: Transition) -> None:
        link = self._link.current
        if link is None:
            return
        spot, key = change.spot, keys.breaker(change.spot.model)
        field, now_ms = f"{spot.worker} {spot.tier}", int(self._clock.unix() * 1000)
        if change.after is State.CLOSED:
            _CLOSE.send(link, key, (field, now_ms, change.openings, self._kept_ms), _ignore)
            return
        until_ms = now_ms + int(change.wait_s * 1000)
        link.send(("HSET", key, field, f"{until_ms} {change.openings}"), _ignore)
        link.send(("PEXPIRE", key, self._kept_ms), _ignore)


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""
