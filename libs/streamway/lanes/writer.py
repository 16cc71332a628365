"""Putting work into lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streamway.lanes.task import TaskCopy
from streamway.telemetry.context import recorded
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.asking import ask
from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link
from streamway.valkey.session import Argument

# How long the record of a generation outlives its last change, in milliseconds.
RECORD_TTL_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class NewTask:
    """A request on its way into a worker's lane. `created_ms` is when it was taken, in Unix milliseconds. `shared`: others may
    follow it."""

    request: common_pb2.GenerationRequest
    worker: str
    copy: TaskCopy
    created_ms: int
    shared: bool = False


def commands_of(task: NewTask) -> list[tuple[Argument, ...]]:
    """What puts a task into its worker's lane, to be sent on one connection in this order: record, its expiry, task copy.

    The record comes first: a worker that reads the copy finds the request. The lane is never trimmed; admission bounds it.
    """
    request = task.request
    key = keys.generation(request.generation)
    record: tuple[Argument, ...] = (
        *("request", request.SerializeToString()),
        *("state", "queued"),
        *("worker", task.worker),
        *("tenant", request.tenant),
        *("session", request.session),
        *("model", request.model),
        *("durability", int(request.durability)),
        *("created_ms", task.created_ms),
        *("follows", ""),
        *("shared", "1" if task.shared else ""),
        *(("trace", request.traceparent) if recorded(request.traceparent) else ()),
    )
    ttl_ms = max(RECORD_TTL_MS, request.deadline_unix_ms - task.created_ms)
    return [("HSET", key, *record), ("PEXPIRE", key, ttl_ms), copy_command(task)]


def copy_command(task: NewTask) -> tuple[Argument, ...]:
    """The last of `commands_of`: for a generation whose record is there."""
    lane = keys.lane(task.worker, keys.task_class(task.request.priority, task.request.entitlement.tier))
    fields = (part for pair in task.copy.fields().items() for part in pair)
    return ("XADD", lane, "*", *fields)


async def add_generation(
    valkey: Valkey, request: common_pb2.GenerationRequest, worker: str, copy: TaskCopy, created_ms: int
) -> None:
    """Adds one; see `add_generations`."""
    await add_generations(valkey, [NewTask(request, worker, copy, created_ms)])


async def add_generations(valkey: Valkey, tasks: Sequence[NewTask]) -> None:
    """Puts tasks into lanes in one round trip. Raises RedisError; then any of the copies may or may not be in its lane."""
    async with valkey.pipeline(transaction=False) as pipe:
        for task in tasks:
            for command in commands_of(task):
                pipe.execute_command(*command)
        await pipe.execute()


async def request_of(
    valkey: Valkey, generations: list[str], link: Link | None = None
) -> list[tuple[common_pb2.GenerationRequest, str, int] | None]:
    """Request, state and creation time (Unix ms) of each generation; None where the record has expired or is damaged.

    Raises RedisError.
    """
    asked = [("HMGET", keys.generation(generation), "request", "state", "created_ms") for generation in generations]
    rows = await ask(valkey, link, asked)
    found: list[tuple[common_pb2.GenerationRequest, str, int] | None] = []
    for request, state, created_ms in rows:
        try:
            found.append((common_pb2.GenerationRequest.FromString(request), state.decode(), int(created_ms)))
        except Exception:  # noqa: BLE001 — protobuf raises its own DecodeError; a record we cannot read is a lost one
            found.append(None)
    return found
