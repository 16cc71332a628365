"""Putting work into lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamway.lanes.task import TaskCopy
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

# How long the record of a generation outlives its last change, in milliseconds.
RECORD_TTL_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class NewTask:
    """A request on its way into a worker's lane. `created_ms` is when it was taken, in Unix milliseconds."""

    request: common_pb2.GenerationRequest
    worker: str
    copy: TaskCopy
    created_ms: int


async def add_generation(
    valkey: Valkey, request: common_pb2.GenerationRequest, worker: str, copy: TaskCopy, created_ms: int
) -> None:
    """Adds one; see `add_generations`."""
    await add_generations(valkey, [NewTask(request, worker, copy, created_ms)])


async def add_generations(valkey: Valkey, tasks: Sequence[NewTask]) -> None:
    """Writes the record of each generation, then its task copy into the worker's lane, all in one round trip.

    The record comes first: a worker that reads the copy finds the request. The lane is never trimmed; admission bounds it.
    Raises RedisError; then any of the copies may or may not be in its lane.
    """
    async with valkey.pipeline(transaction=False) as pipe:
        for task in tasks:
            request = task.request
            key = keys.generation(request.generation)
            pipe.hset(
                key,
                mapping={
                    "request": request.SerializeToString(),
                    "state": "queued",
                    "worker": task.worker,
                    "tenant": request.tenant,
                    "session": request.session,
                    "model": request.model,
                    "durability": request.durability,
                    "created_ms": task.created_ms,
                },
            )
            pipe.pexpire(key, max(RECORD_TTL_MS, request.deadline_unix_ms - task.created_ms))
            fields: dict[Any, Any] = dict(task.copy.fields())
            pipe.xadd(keys.lane(task.worker, keys.task_class(request.priority)), fields)
        await pipe.execute()


async def request_of(
    valkey: Valkey, generations: list[str]
) -> list[tuple[common_pb2.GenerationRequest, str, int] | None]:
    """Request, state and creation time (Unix ms) of each generation; None where the record has expired or is damaged."""
    async with valkey.pipeline(transaction=False) as pipe:
        for generation in generations:
            pipe.hmget(keys.generation(generation), "request", "state", "created_ms")
        rows = await pipe.execute()
    found: list[tuple[common_pb2.GenerationRequest, str, int] | None] = []
    for request, state, created_ms in rows:
        try:
            found.append((common_pb2.GenerationRequest.FromString(request), state.decode(), int(created_ms)))
        except Exception:  # noqa: BLE001 — protobuf raises its own DecodeError; a record we cannot read is a lost one
            found.append(None)
    return found
