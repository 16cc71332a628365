"""`GET /v1/mesh`: who is there and what flows, for the console's picture of the mesh. For operators."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web
from redis.exceptions import RedisError

from services.edge.core import mesh_picture
from services.edge.io.gate import Gate
from services.edge.io.http_errors import json_response
from streamway.errors import StoreUnavailable
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases

# However many look, the store is asked so often.
_FRESH_S: Final = 0.5
_ANSWER_S: Final = 2.0
_KINDS: Final = ("edge", "router", "worker", "cachenode")


class MeshSurface:
    """Asks the store only while somebody looks. `valkey` None: this edge has a list of routers and looks nobody up."""

    def __init__(self, gate: Gate, valkey: Valkey | None, clock: Clock, edge: str) -> None:
        self._gate = gate
        self._valkey = valkey
        self._clock = clock
        self._edge = edge
        self._lock = asyncio.Lock()
        self._picture: dict[str, Any] = {}
        self._until = 0.0

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The picture, at most half a second old. Raises PermissionDenied, StoreUnavailable."""
        self._gate.admit_operator(request)
        async with self._lock:
            if self._clock.monotonic() >= self._until:
                self._picture = await self._look()
                self._until = self._clock.monotonic() + _FRESH_S
        response = json_response(self._picture)
        response.headers["Cache-Control"] = "no-store"
        return response

    async def _look(self) -> dict[str, Any]:
        if self._valkey is None:
            raise StoreUnavailable
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._seen(self._valkey)
        except (RedisError, OSError, TimeoutError):
            raise StoreUnavailable from None

    async def _seen(self, valkey: Valkey) -> dict[str, Any]:
        leases = {kind: await list_leases(valkey, self._clock, kind) for kind in _KINDS}
        ids = sorted(leases["worker"])[: mesh_picture.MOST_ROWS]
        async with valkey.pipeline(transaction=False) as pipe:
            pipe.info("clients", "memory")
            for id_ in ids:
                for class_ in keys.CLASSES:
                    pipe.xlen(keys.lane(id_, class_))
            began = self._clock.monotonic()
            info, *lengths = await pipe.execute()
        width = len(keys.CLASSES)
        lanes = {id_: lengths[at * width : (at + 1) * width] for at, id_ in enumerate(ids)}
        workers = mesh_picture.workers(leases["worker"], lanes)
        return {
            "edge": self._edge,
            "now_ms": int(self._clock.unix() * 1000),
            "edges": mesh_picture.edges(leases["edge"]),
            "routers": mesh_picture.routers(leases["router"]),
            "workers": workers,
            "caches": mesh_picture.caches(leases["cachenode"]),
            "pools": await self._pools(valkey, sorted({model for row in workers for model in row["models"]})),
            "store": {
                "answered_ms": round((self._clock.monotonic() - began) * 1000, 1),
                "clients": int(info.get("connected_clients", 0)),
                "used_bytes": int(info.get("used_memory", 0)),
            },
        }

    async def _pools(self, valkey: Valkey, models: list[str]) -> list[dict[str, Any]]:
        """What waits for any worker of a model."""
        models = models[: mesh_picture.MOST_ROWS]
        async with valkey.pipeline(transaction=False) as pipe:
            for model in models:
                for class_ in keys.CLASSES:
                    pipe.xlen(keys.pool(model, class_))
            lengths = await pipe.execute()
        width = len(keys.CLASSES)
        return [
            {
                "model": model,
                "lanes": dict(zip(keys.CLASSES, lengths[at * width : (at + 1) * width], strict=True)),
            }
            for at, model in enumerate(models)
        ]
