"""Whether an engine call that made no token may be made again by another worker.

    first call of a task ──► began()          counted here, written each second
    it made no token     ──► granted()        another worker there? a retry left? counted, in the same step, in the store

The counts are those of all workers of a model: one that is broken has its tasks made again by the others, and a pool that is
broken as a whole is not asked twice as much (docs/adr/0038-retries-by-the-worker.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Set
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.core.retry_budget import WINDOW_S, Counts, RetryBudget, window_of
from services.inference_adapter.io.peers import Peers
from services.inference_adapter.metrics import AdapterMetrics
from streamway.errors import EngineFailed, EngineOverloaded, FirstTokenTimeout, StreamwayError
from streamway.lanes import TaskCopy
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

_log = structlog.get_logger("adapter")

_WRITE_S: Final = 1.0
_PATIENCE_S: Final = 2.0
_KEPT_MS: Final = int(3 * WINDOW_S * 1000)
# What a healthy engine would not have done, or cannot do now: another one may.
RETRIED: Final = (EngineFailed, EngineOverloaded, FirstTokenTimeout)


class Retries:
    """The budget of this worker's models. Without the store there is none: a task could not be moved either."""

    def __init__(
        self, budget: RetryBudget, valkey: Valkey, peers: Peers, clock: Clock, metrics: AdapterMetrics
    ) -> None:
        self._budget = budget
        self._valkey = valkey
        self._peers = peers
        self._clock = clock
        self._metrics = metrics
        self._unwritten: Counter[str] = Counter()

    def began(self, model: str, copy: TaskCopy | None) -> None:
        """An engine call begins."""
        if copy is not None and copy.attempt == 1:
            self._unwritten[model] += 1

    async def granted(self, error: StreamwayError, model: str, copy: TaskCopy, tried: Set[str]) -> bool:
        """Whether a task whose call ended with `error`, before any token, is to be given to a worker that is not in `tried`."""
        outcome = await self._decide(error, model, copy, tried)
        self._metrics.retries.labels(error.name, outcome).inc()
        _log.info("retry", generation=copy.generation, reason=error.name, outcome=outcome)
        return outcome == "made"

    async def _decide(self, error: StreamwayError, model: str, copy: TaskCopy, tried: Set[str]) -> str:
        if copy.failures >= self._budget.most:
            return "no_attempts"
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._peers.look(model)
                if not self._peers.serve(model, tried):
                    return "no_worker"
                return "made" if await self._take(model) else "no_budget"
        except (TimeoutError, RedisError, OSError):
            return "no_store"

    async def run(self) -> None:
        """Writes what has been counted, until cancelled."""
        while True:
            await asyncio.sleep(_WRITE_S)
            try:
                await self._write()
            except (RedisError, OSError):
                continue  # it is counted later, or with the next window

    async def _take(self, model: str) -> bool:
        number, passed = window_of(self._clock.unix())
        key, calls = keys.retries(model, number), self._unwritten.pop(model, 0)
        # Counted first and looked at then, so that of two that take the last one only one gets it.
        async with self._valkey.pipeline(transaction=True) as pipe:
            pipe.hincrby(key, "calls", calls)
            pipe.hincrby(key, "retries", 1)
            pipe.pexpire(key, _KEPT_MS)
            pipe.hmget(keys.retries(model, number - 1), "calls", "retries")
            now_calls, now_retries, _, before = await pipe.execute()
        if self._budget.allows(_counts(before), Counts(now_calls, now_retries), passed):
            return True
        given_back: Any = self._valkey.hincrby(key, "retries", -1)
        await given_back
        return False

    async def _write(self) -> None:
        if not self._unwritten:
            return
        counted, self._unwritten = self._unwritten, Counter()
        number, _ = window_of(self._clock.unix())
        try:
            async with self._valkey.pipeline(transaction=False) as pipe:
                for model, calls in counted.items():
                    pipe.hincrby(keys.retries(model, number), "calls", calls)
                    pipe.pexpire(keys.retries(model, number), _KEPT_MS)
                await pipe.execute()
        except (RedisError, OSError):
            self._unwritten.update(counted)
            raise


def _counts(row: list[bytes | None]) -> Counts:
    calls, retries = (int(value or 0) for value in row)
    return Counts(calls, retries)
