"""Taking work out of lanes: a consumer group per lane, one consumer per worker, leases on what was taken."""

from __future__ import annotations

from typing import Any

import structlog
from redis.exceptions import ResponseError

from streamway.lanes.task import TakenTask, TaskCopy
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

_log = structlog.get_logger("lanes")


class LaneReader:
    """Reads the lanes of one worker, highest class first.

    `blocking` is a connection of its own: a blocking read must never share one with ordinary commands.
    """

    def __init__(self, valkey: Valkey, blocking: Valkey, worker: str) -> None:
        self._valkey = valkey
        self._blocking = blocking
        self._worker = worker
        self._lanes = {keys.lane(worker, class_): class_ for class_ in keys.CLASSES}

    async def open(self) -> None:
        """Makes the groups. They start at 0, so that what was added before this worker came is not lost."""
        for lane in self._lanes:
            try:
                await self._valkey.xgroup_create(lane, keys.LANE_GROUP, id="0", mkstream=True)
            except ResponseError as problem:
                if not str(problem).startswith("BUSYGROUP"):
                    raise

    async def own_pending(self) -> list[TakenTask]:
        """What this worker had taken and not finished, from its life before a restart or reconnect."""
        taken: list[TakenTask] = []
        for lane in self._lanes:
            last = "0"
            while True:
                reply = await self._valkey.xreadgroup(keys.LANE_GROUP, self._worker, {lane: last}, count=100)
                entries = self._parse(reply)
                if not _entries_of(reply):
                    break
                taken += [task for task in entries if task is not None]
                last = _entries_of(reply)[-1][0].decode()
        return taken

    async def take(self, most: int, block_ms: int) -> list[TakenTask]:
        """At most `most` new tasks. Waits up to `block_ms` when every lane is empty. Raises RedisError.

        COUNT counts per stream, so lanes are asked one by one; only when all are empty does one read block on all of them,
        for a single task.
        """
        taken: list[TakenTask] = []
        for lane in self._lanes:
            if len(taken) >= most:
                return taken
            reply = await self._valkey.xreadgroup(keys.LANE_GROUP, self._worker, {lane: ">"}, count=most - len(taken))
            taken += await self._good(reply)
        if taken or block_ms <= 0:
            return taken
        reply = await self._blocking.xreadgroup(
            keys.LANE_GROUP, self._worker, dict.fromkeys(self._lanes, ">"), count=1, block=block_ms
        )
        return await self._good(reply)

    async def finish(self, tasks: list[TakenTask]) -> None:
        """Acknowledges and deletes, as one step for each lane. Raises RedisError; then the tasks stay pending."""
        by_lane: dict[str, list[str]] = {}
        for task in tasks:
            by_lane.setdefault(task.lane, []).append(task.entry)
        for lane, entries in by_lane.items():
            await self._drop(lane, entries)

    async def renew(self, tasks: list[TakenTask]) -> None:
        """Renews the task leases: resets their idle time without counting a delivery. Raises RedisError."""
        by_lane: dict[str, list[str]] = {}
        for task in tasks:
            by_lane.setdefault(task.lane, []).append(task.entry)
        for lane, entries in by_lane.items():
            await self._valkey.xclaim(lane, keys.LANE_GROUP, self._worker, 0, entries, justid=True)

    async def _good(self, reply: Any) -> list[TakenTask]:
        """Parsed tasks; an entry that is not one of ours is logged and removed, since no worker could ever run it."""
        good = [task for task in self._parse(reply) if task is not None]
        bad: dict[str, list[str]] = {}
        for lane, entries in _lanes_of(reply):
            known = {task.entry for task in good if task.lane == lane}
            strange = [entry.decode() for entry, _ in entries if entry.decode() not in known]
            if strange:
                bad[lane] = strange
        for lane, entries in bad.items():
            _log.error("task_unreadable", lane=lane, entries=entries)
            await self._drop(lane, entries)
        return good

    async def _drop(self, lane: str, entries: list[str]) -> None:
        async with self._valkey.pipeline(transaction=True) as pipe:
            pipe.xack(lane, keys.LANE_GROUP, *entries)
            pipe.xdel(lane, *entries)
            await pipe.execute()

    def _parse(self, reply: Any) -> list[TakenTask | None]:
        tasks: list[TakenTask | None] = []
        for lane, entries in _lanes_of(reply):
            for entry, fields in entries:
                try:
                    copy = TaskCopy.parse(fields)
                except (KeyError, ValueError, AttributeError, TypeError):
                    tasks.append(None)
                    continue
                tasks.append(TakenTask(copy, lane, entry.decode(), self._lanes[lane]))
        return tasks


def _lanes_of(reply: Any) -> list[tuple[str, list[tuple[bytes, dict[bytes, bytes]]]]]:
    """The reply of XREADGROUP under RESP2 (a list) or RESP3 (a mapping), as pairs of lane and entries."""
    if not reply:
        return []
    if isinstance(reply, dict):
        # RESP3 nests the entries of each stream once more.
        return [(lane.decode(), batches[0] if batches else []) for lane, batches in reply.items()]
    return [(lane.decode(), entries) for lane, entries in reply]


def _entries_of(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    return [entry for _, entries in _lanes_of(reply) for entry in entries]
