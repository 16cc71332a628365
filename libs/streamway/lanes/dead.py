"""The dead lane of a model: tasks that were given up, with their history, and trying them again.

    sw:dead:qwen   generation, attempt, ref, lane, calls (JSON: attempt, epoch, position and worker of each engine call)

A task is tried again under its own id: its channel begins anew, so whoever resumes the generation reads the new answer, and
whoever still shows the old one is told that the texts part. The entry goes only when the task is in its lane.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamway.lanes.task import MOST_ATTEMPTS, TaskCopy
from streamway.lanes.writer import RECORD_TTL_MS
from streamway.runtime.ids import new_secret_id
from streamway.v1 import common_pb2, journal_pb2
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

# How long the request of a task that was given up is kept for another try: a week.
DEAD_RECORD_TTL_MS: Final = 7 * 24 * 3_600_000
_CHANNEL_TTL_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class DeadTask:
    """One task that was given up. `calls` are its engine calls in order, as `_history` of the reclaimer wrote them.

    `kept`: its request is still there, so that it can be tried again.
    """

    entry: str
    generation: str
    attempt: int
    lane: str
    calls: Sequence[dict[str, Any]]
    tenant: str
    kept: bool


async def list_dead(valkey: Valkey, model: str, most: int = 1_000) -> list[DeadTask]:
    """The newest last. Raises RedisError."""
    rows: Any = await valkey.xrange(keys.dead(model), count=most)
    async with valkey.pipeline(transaction=False) as pipe:
        for _, fields in rows:
            pipe.hmget(keys.generation(fields[b"generation"].decode()), "tenant", "request")
        records = await pipe.execute() if rows else []
    found = []
    for (entry, fields), (tenant, request) in zip(rows, records, strict=True):
        calls = json.loads(fields.get(b"calls") or b"[]")
        found.append(
            DeadTask(
                entry=entry.decode(),
                generation=fields[b"generation"].decode(),
                attempt=int(fields[b"attempt"]),
                lane=fields.get(b"lane", b"").decode(),
                calls=calls,
                tenant=(tenant or b"").decode(),
                kept=request is not None,
            )
        )
    return found


async def dead_models(valkey: Valkey) -> dict[str, int]:
    """How many dead tasks each model has. Raises RedisError."""
    found: dict[str, int] = {}
    async for name in valkey.scan_iter(match=keys.dead("*"), count=1_000):
        length = await valkey.xlen(name)
        if length:
            found[name.decode().removeprefix(keys.dead(""))] = length
    return dict(sorted(found.items()))


async def retry_dead(valkey: Valkey, model: str, task: DeadTask) -> bool:
    """Puts one task into the model's pool once more; False when its request is not kept any more. Raises RedisError.

    It gets one more attempt: if that fails too, it is here again.
    """
    record = keys.generation(task.generation)
    raw: Any = await valkey.hget(record, "request")
    if raw is None:
        return False
    request = common_pb2.GenerationRequest.FromString(raw)
    attempt = task.attempt + 1
    copy = TaskCopy(task.generation, attempt, new_secret_id(), excused=max(0, attempt - MOST_ATTEMPTS))
    accepted = common_pb2.Accepted(
        durability=request.durability, cursor="0-1", model=request.model, session=request.session, cache="off"
    )
    payload = journal_pb2.JournalPayload(events=[common_pb2.Event(position=1, accepted=accepted)])
    channel = keys.response(task.generation)
    async with valkey.pipeline(transaction=True) as pipe:
        pipe.delete(channel)
        pipe.xadd(channel, {"kind": "accepted", "first": 1, "payload": payload.SerializeToString()}, id="0-1")
        pipe.pexpire(channel, _CHANNEL_TTL_MS)
        await pipe.execute()
    async with valkey.pipeline(transaction=True) as pipe:
        pipe.hset(record, mapping={"state": "queued", "worker": ""})
        pipe.pexpire(record, RECORD_TTL_MS)
        await pipe.execute()
    fields: dict[Any, Any] = dict(copy.fields())
    await valkey.xadd(keys.pool(model, keys.task_class(request.priority, request.entitlement.tier)), fields)
    await valkey.xdel(keys.dead(model), task.entry)
    return True
