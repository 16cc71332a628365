"""Reclaims the work of dead workers when no router is there to do it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.io.journaling import DeadLetters
from services.inference_adapter.io.peers import Peers, lane_for
from streamway.journal import Reclaimer
from streamway.lanes import TaskCopy, models_of, own_lanes, pool_lanes
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_epoch, new_secret_id
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases
from streamway.valkey.session import LinkLost, Sessions, StoreRefused

_log = structlog.get_logger("adapter")

_EVERY_S: Final = 1.0
# Looking for the lanes of workers that the index of leases has forgotten walks over all keys.
_SCAN_EVERY_S: Final = 30.0
_LANES: Final = "sw:lane:*"


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
        clock: Clock,
        worker: str,
        models: Callable[[], list[str]],
        *,
        after_s: float,
        lease_s: float,
    ) -> None:
        self._valkey = valkey
        self._peers = peers
        self._clock = clock
        self._worker = worker
        self._models = models
        self._after_s = after_s
        self._lease_s = lease_s
        self._name = f"reclaimer.{worker}"
        self._routerless_since: float | None = None
        self._answers_since: float | None = None
        self._scanned_at = float("-inf")
        self._forgotten: set[str] = set()
        self._model_of: dict[str, str] = {}
        self._reclaimer = Reclaimer(sessions, self._name, self._place, new_secret_id, new_epoch, DeadLetters(valkey))

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
        routers = await list_leases(self._valkey, self._clock, "router")
        if self._answers_since is None:
            self._answers_since = now
        if routers:
            self._routerless_since = None
            return False
        if self._routerless_since is None:
            self._routerless_since = now
        return now - self._routerless_since >= self._after_s and now - self._answers_since >= self._lease_s

    async def _sweep(self) -> None:
        await self._peers.look()
        alive = self._peers.alive
        if not alive or min(alive) != self._worker:
            return
        for worker in await self._known() - alive:
            for lane in own_lanes(worker):
                await self._sweep_lane(lane, alive, owner_gone=True)
        for lane in (*own_lanes(self._worker), *pool_lanes(self._models())):
            await self._sweep_lane(lane, alive, owner_gone=False)

    async def _sweep_lane(self, lane: str, alive: frozenset[str], *, owner_gone: bool) -> None:
        await self._look_into(lane)
        settled = await self._reclaimer.sweep(lane, lambda holder: holder not in alive, owner_gone=owner_gone)
        if settled:
            _log.warning(
                "reclaimed", lane=lane, fates=[type(fate).__name__ for _, fate in settled][:20], of=len(settled)
            )
        self._model_of.clear()

    async def _look_into(self, lane: str) -> None:
        """Which model each task of a lane is for: that decides where it may go."""
        rows: Any = await self._valkey.xrange(lane)
        generations = [fields[b"generation"].decode() for _, fields in rows if b"generation" in fields]
        if generations:
            self._model_of = dict(zip(generations, await models_of(self._valkey, generations), strict=True))

    def _place(self, copy: TaskCopy, lane: str) -> str:
        model = self._model_of.get(copy.generation) or self._models()[0]
        worker = self._peers.choose(model)
        if not worker and model in self._models():
            worker = self._worker
        return lane_for(worker, model, keys.class_of(lane))

    async def _known(self) -> set[str]:
        """Workers that there are or were, from the index of leases and from the lanes themselves."""
        now = self._clock.monotonic()
        if now - self._scanned_at >= _SCAN_EVERY_S:
            self._scanned_at = now
            names: set[str] = set()
            async for key in self._valkey.scan_iter(match=_LANES, count=1000):
                names.add(key.decode().partition("{")[2].partition("}")[0])
            self._forgotten = names
        index: Any = await self._valkey.zrange(keys.lease_index("worker"), 0, -1)
        return self._forgotten | {name.decode() for name in index}
