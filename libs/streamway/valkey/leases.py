"""Leases: how processes find each other. A registration with an expiry, renewed by a heartbeat.

sw:workers            zset   adapter-0 → 1764442000000 (when its lease ends, Unix ms)
sw:worker:{adapter-0} hash   address, models, slots, load …; expires with the lease
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

_log = structlog.get_logger("leases")
REMEMBERED_MS: Final = 3_600_000
_AT_ONCE: Final = 50


class Lease:
    """Keeps one process registered under `kind` and `id_` as long as `hold` runs.

    `fields` is asked anew at each renewal, so it can carry the current load. `lease_s` is how long a silent process still
    counts; it is renewed each third of that.
    """

    def __init__(
        self,
        valkey: Valkey,
        clock: Clock,
        kind: str,
        id_: str,
        fields: Callable[[], Mapping[str, str]],
        lease_s: float = 3.0,
    ) -> None:
        self._valkey = valkey
        self._clock = clock
        self._kind = kind
        self._id = id_
        self._fields = fields
        self._lease_ms = int(lease_s * 1000)

    async def renew(self) -> None:
        """Writes the registration once. Raises RedisError."""
        key = keys.lease(self._kind, self._id)
        now_ms = int(self._clock.unix() * 1000)
        async with self._valkey.pipeline(transaction=False) as pipe:
            fields: dict[Any, Any] = dict(self._fields())
            pipe.hset(key, mapping=fields)
            pipe.pexpire(key, self._lease_ms)
            pipe.zadd(keys.lease_index(self._kind), {self._id: now_ms + self._lease_ms})
            # Whoever has been gone for an hour is forgotten. Until then its lanes can be found and cleared.
            pipe.zremrangebyscore(keys.lease_index(self._kind), 0, now_ms - REMEMBERED_MS)
            await pipe.execute()

    async def hold(self) -> None:
        """Renews until cancelled. An unreachable store is logged once and tried again: the process goes on serving."""
        lost = False
        while True:
            try:
                await self.renew()
                if lost:
                    _log.info("lease_regained", kind=self._kind, id=self._id)
                lost = False
            except (RedisError, OSError) as problem:
                if not lost:
                    _log.warning("lease_not_renewed", kind=self._kind, id=self._id, problem=type(problem).__name__)
                lost = True
            await asyncio.sleep(self._lease_ms / 3000)

    async def release(self) -> None:
        """Ends the registration, so that nobody waits for its expiry. Never raises."""
        try:
            async with self._valkey.pipeline(transaction=False) as pipe:
                # Still remembered: its lanes may hold what it could not finish.
                pipe.zadd(keys.lease_index(self._kind), {self._id: int(self._clock.unix() * 1000)}, xx=True)
                pipe.delete(keys.lease(self._kind, self._id))
                await pipe.execute()
        except (RedisError, OSError):
            _log.info("lease_left_to_expire", kind=self._kind, id=self._id)


async def list_leases(valkey: Valkey, clock: Clock, kind: str) -> dict[str, dict[str, str]]:
    """The fields of every live process of one kind, by id. Raises RedisError."""
    # Scores are by the clocks of many machines. Whether a lease lives its hash says, by the server's clock.
    since_ms = int(clock.unix() * 1000) - REMEMBERED_MS
    raw: Any = await valkey.zrangebyscore(keys.lease_index(kind), since_ms, "+inf")
    ids: list[str] = [id_.decode() for id_ in raw]
    if not ids:
        return {}
    async with valkey.pipeline(transaction=False) as pipe:
        for id_ in ids:
            pipe.hgetall(keys.lease(kind, id_))
        found = await pipe.execute()
    return {
        id_: {name.decode(): value.decode() for name, value in fields.items()}
        for id_, fields in zip(ids, found, strict=True)
        if fields
    }


async def known_leases(valkey: Valkey, kind: str) -> dict[str, bool]:
    """Every process of one kind that had a lease within the last hour, and whether it has one now. By the server's clock alone.

    Raises RedisError.
    """
    raw: Any = await valkey.zrange(keys.lease_index(kind), 0, -1)
    ids: list[str] = [id_.decode() for id_ in raw]
    found: list[int] = []
    # In parts: with a thousand of them this would hold up everything else for ten milliseconds.
    for start in range(0, len(ids), _AT_ONCE):
        async with valkey.pipeline(transaction=False) as pipe:
            for id_ in ids[start : start + _AT_ONCE]:
                pipe.exists(keys.lease(kind, id_))
            found += await pipe.execute()
    return {id_: bool(alive) for id_, alive in zip(ids, found, strict=True)}
