"""Where workers are learned from: their leases in Valkey, or a list of addresses that are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc.aio
import structlog

from services.router.core.fleet import PART, PAUSE_S
from services.router.core.queues import Lanes
from services.router.core.worker import ServedModel, Worker, running_of
from streamway.config.shared import SharedSettings
from streamway.errors import StoreUnavailable
from streamway.rpc import mesh_metadata, open_channel
from streamway.runtime.clock import Clock
from streamway.runtime.listening import listening
from streamway.v1 import inference_pb2, inference_pb2_grpc
from streamway.valkey import keys
from streamway.valkey.leases import REMEMBERED_MS
from streamway.valkey.link import Link
from streamway.valkey.session import LinkLost, Session, StoreRefused

_log = structlog.get_logger("router")
_ANSWER_S = 1.0
# gRPC's own clock goes on while this loop is busy, so ours decides.
_CALL_S = 15.0
_STORE_ANSWER_S = 2.0


class LeaseSource:
    """Workers that hold a lease. Read over the link in parts: decisions go on in between, also with a thousand of them."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._strange: set[str] = set()

    async def read(self) -> list[Worker]:
        """Every live lease, with the length of the worker's lanes. Raises StoreUnavailable."""
        return await _answered(self._link, self._read)

    async def _read(self, session: Session) -> list[Worker]:
        since_ms = int(self._clock.unix() * 1000) - REMEMBERED_MS
        found = await session.call("ZRANGEBYSCORE", keys.lease_index("worker"), since_ms, "+inf")
        ids: list[str] = [id_.decode() for id_ in found]
        workers: list[Worker] = []
        for start in range(0, len(ids), PART):
            if start:
                await asyncio.sleep(PAUSE_S)
            part = ids[start : start + PART]
            # What is dispatched after this is not in the lengths that are asked for now.
            polled_ms = self._clock.unix() * 1000
            leases: list[Any] = []
            for id_ in part:
                session.send(("HGETALL", keys.lease("worker", id_)), leases.append)
            lengths = await _lengths(session, part)
            for id_, fields, lanes in zip(part, leases, lengths, strict=True):
                worker = self._parse(id_, fields) if isinstance(fields, list) and fields else None
                if worker is not None:
                    workers.append(replace(worker, lanes=lanes, polled_ms=polled_ms))
        return workers

    def _parse(self, id_: str, fields: list[bytes]) -> Worker | None:
        told = [value.decode(errors="replace") for value in fields]
        try:
            return Worker.parse(id_, dict(zip(told[::2], told[1::2], strict=True)))
        except (KeyError, ValueError, TypeError) as problem:
            if id_ not in self._strange:
                self._strange.add(id_)
                _log.error("worker_lease_unreadable", worker=id_, problem=repr(problem))
            return None


class StaticSource:
    """Workers at known addresses, asked with GetLoad. One that does not answer within a second is left out."""

    def __init__(self, addresses: Sequence[str], shared: SharedSettings, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._metadata = mesh_metadata(shared)
        self._channels = {address: open_channel(address, shared) for address in addresses}

    async def read(self) -> list[Worker]:
        """What each address says of itself. Raises StoreUnavailable."""
        found: list[Worker | None] = [None] * len(self._channels)

        async def ask(index: int, address: str, channel: grpc.aio.Channel) -> None:
            stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
            try:
                async with listening(_ANSWER_S):
                    load = await stub.GetLoad(inference_pb2.GetLoadRequest(), timeout=_CALL_S, metadata=self._metadata)
            except (grpc.aio.AioRpcError, TimeoutError):
                return
            found[index] = self._worker(address, load)

        async with asyncio.TaskGroup() as group:
            for index, (address, channel) in enumerate(self._channels.items()):
                group.create_task(ask(index, address, channel))
        workers, polled_ms = [worker for worker in found if worker is not None], self._clock.unix() * 1000

        async def with_tasks(session: Session) -> list[Worker]:
            lengths = await _lengths(session, [worker.id for worker in workers])
            return [
                replace(worker, lanes=lanes, polled_ms=polled_ms)
                for worker, lanes in zip(workers, lengths, strict=True)
            ]

        return await _answered(self._link, with_tasks)

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
            limit=load.limit,
            running=running_of(load.running_lanes),
            busy=load.running,
            preload_depth=load.preload_depth,
            kv_used=min(1.0, max(0.0, load.kv_used)),
            kv_full=load.kv_full,
            memory_pressed=load.memory_pressed,
            draining=load.draining,
            healthy=load.engine.healthy,
            reported_ms=self._clock.unix() * 1000,
        )


async def _lengths(session: Session, workers: Sequence[str]) -> list[Lanes]:
    """The number of entries in each worker's lanes: everybody's tasks, also those not read yet. A finished task is deleted.

    Raises LinkLost or StoreRefused.
    """
    answers: list[Any] = []
    for worker in workers:
        for class_ in keys.CLASSES:
            session.send(("XLEN", keys.lane(worker, class_)), answers.append)
    # Replies come in order: with this one all others are there.
    await session.call("PING")
    width = len(keys.CLASSES)
    counts = [answer if isinstance(answer, int) else 0 for answer in answers]
    return [_lanes(counts[start : start + width]) for start in range(0, len(counts), width)]


def _lanes(lengths: Sequence[int]) -> Lanes:
    gold, silver, bronze, bulk = lengths
    return gold, silver, bronze, bulk


async def _answered(link: Link, read: Callable[[Session], Awaitable[list[Worker]]]) -> list[Worker]:
    """What is read on the present connection. Raises StoreUnavailable when there is none, it breaks, or nothing comes."""
    session = link.current
    if session is None:
        raise StoreUnavailable
    try:
        async with listening(_STORE_ANSWER_S):
            return await read(session)
    except (TimeoutError, LinkLost, StoreRefused):
        raise StoreUnavailable from None
