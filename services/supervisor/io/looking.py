"""The mesh as its leases, its lanes and the processes behind them say it is, at one moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import grpc.aio

from streamway.config import SharedSettings
from streamway.rpc import open_channel
from streamway.runtime.clock import SystemClock
from streamway.v1 import cache_pb2, cache_pb2_grpc, inference_pb2, inference_pb2_grpc
from streamway.valkey import keys
from streamway.valkey.connection import Valkey, connect
from streamway.valkey.leases import list_leases

_ANSWER_S: Final = 2.0
_KINDS: Final = ("worker", "router", "cachenode")
Leases = dict[str, dict[str, str]]


@dataclass(slots=True)
class Picture:
    """Leases by kind, tasks in lanes, and the answers of those that were asked. `at` is in seconds of the monotonic clock."""

    at: float = 0.0
    leases: dict[str, Leases] = field(default_factory=dict)
    loads: dict[str, inference_pb2.GetLoadResponse] = field(default_factory=dict)
    stats: dict[str, cache_pb2.StatsResponse] = field(default_factory=dict)
    # Tasks in the lanes of each worker and in the pools of each model, by class: read and not yet ended ones too.
    lanes: dict[str, dict[keys.TaskClass, int]] = field(default_factory=dict)
    pools: dict[str, dict[keys.TaskClass, int]] = field(default_factory=dict)

    def models(self) -> dict[str, list[tuple[int, int]]]:
        """Slots and context tokens of each worker that serves a model, by model."""
        served: dict[str, list[tuple[int, int]]] = {}
        for lease in self.leases["worker"].values():
            for model in json.loads(lease.get("models") or "[]"):
                row = (int(lease.get("slots") or 0), int(model.get("context_tokens") or 0))
                served.setdefault(model["name"], []).append(row)
        return served


class Looker:
    """Looks as often as it is asked to, over connections that it keeps. Used as a context."""

    def __init__(self, valkey_url: str, shared: SharedSettings, metadata: Any) -> None:
        self._valkey_url = valkey_url
        self._shared = shared
        self._metadata = metadata
        self._clock = SystemClock()
        self._valkey: Valkey | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        self._valkey = await connect(self._valkey_url, start_timeout_s=1.0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._valkey is not None:
            await self._valkey.aclose()
        for channel in self._channels.values():
            await channel.close()

    async def look(self, *, lanes: bool = False) -> Picture:
        """A picture of now, with the lanes where they are asked for."""
        assert self._valkey is not None
        picture = Picture()
        for kind in _KINDS:
            picture.leases[kind] = await list_leases(self._valkey, self._clock, kind)
        if lanes:
            await self._count(self._valkey, picture)
        async with asyncio.TaskGroup() as group:
            for worker, lease in picture.leases["worker"].items():
                group.create_task(self._ask_worker(worker, lease["address"], picture))
            for node, lease in picture.leases["cachenode"].items():
                group.create_task(self._ask_cache(node, lease["address"], picture))
        await self._forget({lease["address"] for of in picture.leases.values() for lease in of.values()})
        picture.at = self._clock.monotonic()
        return picture

    async def _count(self, valkey: Valkey, picture: Picture) -> None:
        key: Callable[[str, keys.TaskClass], str]
        owners = [(picture.lanes, worker, keys.lane) for worker in picture.leases["worker"]]
        pools = [(picture.pools, model, keys.pool) for model in picture.models()]
        # No transaction: the keys lie in many slots of a cluster.
        pipeline = valkey.pipeline(transaction=False)
        for _, owner, key in (*owners, *pools):
            for class_ in keys.CLASSES:
                pipeline.xlen(key(owner, class_))
        lengths = iter(await pipeline.execute())
        for where, owner, _ in (*owners, *pools):
            where[owner] = {class_: int(next(lengths)) for class_ in keys.CLASSES}

    async def _ask_worker(self, worker: str, address: str, picture: Picture) -> None:
        stub = inference_pb2_grpc.InferenceServiceStub(self._channel(address))
        try:
            picture.loads[worker] = await stub.GetLoad(
                inference_pb2.GetLoadRequest(), metadata=self._metadata, timeout=_ANSWER_S
            )
        except grpc.aio.AioRpcError:
            return  # shown as such: it has a lease and does not answer

    async def _ask_cache(self, node: str, address: str, picture: Picture) -> None:
        stub = cache_pb2_grpc.CacheServiceStub(self._channel(address))
        try:
            picture.stats[node] = await stub.Stats(cache_pb2.StatsRequest(), metadata=self._metadata, timeout=_ANSWER_S)
        except grpc.aio.AioRpcError:
            return

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._shared)
        return self._channels[address]

    async def _forget(self, known: set[str]) -> None:
        for address in self._channels.keys() - known:
            await self._channels.pop(address).close()
