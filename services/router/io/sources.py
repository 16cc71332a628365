"""Where workers are learned from: their leases in Valkey, or a list of addresses that are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import grpc.aio
import structlog

from services.router.core.worker import ServedModel, Worker
from streamway.config.shared import SharedSettings
from streamway.rpc import mesh_metadata, open_channel
from streamway.runtime.clock import Clock
from streamway.v1 import inference_pb2, inference_pb2_grpc
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases

_log = structlog.get_logger("router")
_ANSWER_S = 1.0


class LeaseSource:
    """Workers that hold a lease."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._strange: set[str] = set()

    async def read(self) -> list[Worker]:
        """Every live lease, with the length of the worker's lanes."""
        workers: list[Worker] = []
        for id_, fields in (await list_leases(self._valkey, self._clock, "worker")).items():
            try:
                workers.append(Worker.parse(id_, fields))
            except (KeyError, ValueError, TypeError) as problem:
                if id_ not in self._strange:
                    self._strange.add(id_)
                    _log.error("worker_lease_unreadable", worker=id_, problem=repr(problem))
        return await with_tasks(self._valkey, self._clock, workers)


class StaticSource:
    """Workers at known addresses, asked with GetLoad. One that does not answer within a second is left out."""

    def __init__(self, addresses: Sequence[str], shared: SharedSettings, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._metadata = mesh_metadata(shared)
        self._channels = {address: open_channel(address, shared) for address in addresses}

    async def read(self) -> list[Worker]:
        """What each address says of itself."""
        found: list[Worker | None] = [None] * len(self._channels)

        async def ask(index: int, address: str, channel: grpc.aio.Channel) -> None:
            stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
            try:
                load = await stub.GetLoad(inference_pb2.GetLoadRequest(), timeout=_ANSWER_S, metadata=self._metadata)
            except grpc.aio.AioRpcError:
                return
            found[index] = self._worker(address, load)

        async with asyncio.TaskGroup() as group:
            for index, (address, channel) in enumerate(self._channels.items()):
                group.create_task(ask(index, address, channel))
        return await with_tasks(self._valkey, self._clock, [worker for worker in found if worker is not None])

    async def close(self) -> None:
        """Closes the channels."""
        for channel in self._channels.values():
            await channel.close()

    def _worker(self, address: str, load: inference_pb2.GetLoadResponse) -> Worker:
        return Worker(
            id=load.worker,
            address=address,
            models=tuple(ServedModel(name, load.context_tokens) for name in load.models),
            slots=max(1, load.slots),
            load_tokens=load.load_tokens,
            prefill_ms=load.prefill_ms,
            slot_ms=load.slot_ms,
            kv_used=min(1.0, max(0.0, load.kv_used)),
            draining=load.draining,
            healthy=load.engine.healthy,
            reported_ms=self._clock.unix() * 1000,
        )


async def with_tasks(valkey: Valkey, clock: Clock, workers: list[Worker]) -> list[Worker]:
    """The same workers with the number of entries in their lanes: everybody's tasks, also those not read yet.

    A finished task is deleted from its lane, so its length is the number of live ones. Raises RedisError.
    """
    if not workers:
        return []
    polled_ms = clock.unix() * 1000
    async with valkey.pipeline(transaction=False) as pipe:
        for worker in workers:
            for class_ in keys.CLASSES:
                pipe.xlen(keys.lane(worker.id, class_))
        lengths: list[int] = await pipe.execute()
    width = len(keys.CLASSES)
    return [
        replace(worker, tasks=sum(lengths[index * width : (index + 1) * width]), polled_ms=polled_ms)
        for index, worker in enumerate(workers)
    ]
