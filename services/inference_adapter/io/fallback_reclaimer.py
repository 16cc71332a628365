"""Reclaims the work of dead workers when no router is there to do it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.io.peers import Peers, lane_for
from services.inference_adapter.io.routers import Routers
from streamway.journal import Reclaimer
from streamway.journal.given_up import GivenUp
from streamway.lanes import TaskCopy, models_of, own_lanes, pool_lanes
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_epoch, new_secret_id
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import known_leases
from streamway.valkey.session import LinkLost, Sessions, StoreRefused

_log = structlog.get_logger("adapter")

_EVERY_S: Final = 1.0


class FallbackReclaimer:
    """Sweeps lanes when there has been no router's lease for `after_s`, while Valkey answered.

    Of all workers the one with the lowest name does it. It counts as a consumer of its own, beside the worker whose name it
    bears: what a reclaimer has claimed and not settled must look like nobody's to the next.
    """

    def __init__(
        self,
        valkey: Valkey,
        sessions: Sessions,
        peers: Peers,
        routers: Routers,
        clock: Clock,
        worker: str,
        models: Callable[[], list[str]],
        *,
        after_s: float,
        lease_s: float,
    ) -> None:
        self._valkey = valkey
        self._peers = peers
        self._routers = routers
        self._clock = clock
        self._worker = worker
        self._models = models
        self._after_s = after_s
        self._lease_s = lease_s
        self._routerless_since: float | None = None
        self._answers_since: float | None = None
        self._model_of: dict[str, str] = {}
        self._reclaimer = Reclaimer(
            sessions, f"reclaimer.{worker}", self._place, new_secret_id, new_epoch, GivenUp(valkey)
        )

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                if await self._is_due():
                    await self._sweep()
            except (RedisError, OSError, LinkLost, StoreRefused) as problem:
                self._answers_since = None
                _log.info("not_reclaimed", problem=type(problem).__name__)

    async def _is_due(self) -> bool:
        """Leases that ended while Valkey was away say nothing: a full one must pass first."""
        now = self._clock.monotonic()
        routed = await self._routers.look()
        if self._answers_since is None:
            self._answers_since = now
        if routed:
            self._routerless_since = None
            return False
        if self._routerless_since is None:
            self._routerless_since = now
        return now - self._routerless_since >= self._after_s and now - self._answers_since >= self._lease_s

    async def _sweep(self) -> None:
        await self._peers.look()
        workers = await known_leases(self._valkey, "worker")
        alive = frozenset(name for name, lives in workers.items() if lives)
        if not alive or min(alive) != self._worker:
            return
        for worker in workers.keys() - alive:
            for lane in own_lanes(worker):
                await self._clear(lane, alive, owner_gone=True)
        for lane in (*own_lanes(self._worker), *pool_lanes(self._models())):
            await self._clear(lane, alive, owner_gone=False)

    async def _clear(self, lane: str, alive: frozenset[str], *, owner_gone: bool) -> None:
        claimed = await self._reclaimer.claim(lane, lambda holder: holder not in alive, owner_gone=owner_gone)
        if not claimed:
            return
        generations = [copy.generation for copy, _ in claimed]
        self._model_of = dict(zip(generations, await models_of(self._valkey, generations), strict=True))
        for copy, place in claimed:
            await self._reclaimer.settle(copy, place)
        _log.warning("lane_cleared", lane=lane, tasks=len(claimed))

    def _place(self, copy: TaskCopy, lane: str) -> str:
        """The worker with the most room, else this one, else the pool of a model that nobody serves now."""
        model = self._model_of.get(copy.generation) or self._models()[0]
        worker = self._peers.choose(model)
        if not worker and model in self._models():
            worker = self._worker
        return lane_for(worker, model, keys.class_of(lane))
