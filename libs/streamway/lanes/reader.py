"""Taking work out of lanes: a consumer group per lane, one consumer per worker, leases on what was taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog
from redis.exceptions import ResponseError

from streamway.lanes.task import TakenTask, TaskCopy
from streamway.valkey import keys
from streamway.valkey.asking import ask
from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link

_log = structlog.get_logger("lanes")

# Lanes with their entries: (lane, [(entry id, fields)]).
_Reply = list[tuple[str, list[tuple[str, dict[bytes, bytes]]]]]
_PAGE: Final = 100
# How much longer than asked a blocking read may take before the connection counts as dead.
_BLOCK_MARGIN_S: Final = 5.0


def own_lanes(worker: str) -> dict[str, keys.TaskClass]:
    """A worker's own lanes, highest class first."""
    return {keys.lane(worker, class_): class_ for class_ in keys.CLASSES}


def pool_lanes(models: Iterable[str]) -> dict[str, keys.TaskClass]:
    """The pools of some models, highest class first."""
    return {keys.pool(model, class_): class_ for class_ in keys.CLASSES for model in models}


class LaneReader:
    """Reads lanes for one worker, in the order given: its own, or the pools of its models.

    `blocking` is a connection of its own: a blocking read must never share one with ordinary commands. In a Cluster a worker's
    lanes lie in one slot and a pool in another, so each kind has its reader. Tasks are taken over `link` where there is one.
    """

    def __init__(
        self,
        valkey: Valkey,
        blocking: Valkey,
        worker: str,
        lanes: Mapping[str, keys.TaskClass],
        link: Link | None = None,
    ) -> None:
        self._valkey = valkey
        self._blocking = blocking
        self._link = link
        self._worker = worker
        self._lanes = dict(lanes)
        # Newest entry of each lane that is known, taken by whomever: `wait` looks behind it.
        self._seen: dict[Any, Any] = dict.fromkeys(self._lanes, "0-0")

    async def open(self) -> None:
        """Makes the groups. They start at 0, so that what was added before this worker came is not lost."""
        for lane in self._lanes:
            try:
                await self._valkey.xgroup_create(lane, keys.LANE_GROUP, id="0", mkstream=True)
            except ResponseError as problem:
                if not str(problem).startswith("BUSYGROUP"):
                    raise
            groups: Any = await self._valkey.xinfo_groups(lane)
            for group in groups:
                if group["name"] == keys.LANE_GROUP.encode():
                    self._seen[lane] = group["last-delivered-id"].decode()

    async def own_pending(self) -> list[TakenTask]:
        """What this worker had taken and not finished, from its life before a restart or reconnect. Raises RedisError."""
        taken: list[TakenTask] = []
        for lane in self._lanes:
            last = "0"
            while True:
                reply = await self._read({lane: last}, _PAGE)
                entries = [entry for _, page in reply for entry, _ in page]
                if not entries:
                    break
                taken += await self._good(reply)
                last = entries[-1]
        return taken

    async def take(self, most: Mapping[keys.TaskClass, int]) -> list[TakenTask]:
        """New tasks, so many of each class at most, without waiting, in one round trip.

        Raises RedisError; what was read is then among `own_pending`.
        """
        # COUNT counts per stream, and 0 would mean all of it.
        reads = [
            ("XREADGROUP", "GROUP", keys.LANE_GROUP, self._worker, "COUNT", count, "STREAMS", lane, ">")
            for lane, class_ in self._lanes.items()
            if (count := most.get(class_, 0)) > 0
        ]
        taken: list[TakenTask] = []
        for reply in map(_rows, await ask(self._valkey, self._link, reads)):
            self._note(reply)
            taken += await self._good(reply)
        return taken

    async def wait(self, block_ms: int) -> None:
        """Returns when a lane may have something new, or after `block_ms`. Raises RedisError or TimeoutError.

        It looks and takes nothing: a read through the group would have to promise room for what it may bring, and a
        cancelled one would leave a task that nobody knows of.
        """
        async with asyncio.timeout(block_ms / 1000 + _BLOCK_MARGIN_S):
            reply: Any = await self._blocking.xread(dict(self._seen), count=1, block=block_ms)
        self._note(_rows(reply))

    async def finish(self, tasks: list[TakenTask]) -> None:
        """Acknowledges and deletes, as one step for each lane. Raises RedisError; then some may still be pending."""
        for lane, entries in _by_lane(tasks).items():
            await self._drop(lane, entries)

    async def renew(self, tasks: list[TakenTask]) -> None:
        """Renews the task leases: resets their idle time without counting a delivery. Raises RedisError."""
        for lane, entries in _by_lane(tasks).items():
            await self._valkey.xclaim(lane, keys.LANE_GROUP, self._worker, 0, [*entries], justid=True)

    async def length(self) -> int:
        """Tasks in the lanes, read or not; finished ones are deleted. Raises RedisError."""
        return sum([int(await self._valkey.xlen(lane)) for lane in self._lanes])

    async def _read(self, after: dict[Any, Any], count: int) -> _Reply:
        reply: Any = await self._valkey.xreadgroup(keys.LANE_GROUP, self._worker, after, count=count)
        return _rows(reply)

    def _note(self, reply: _Reply) -> None:
        for lane, page in reply:
            if page:
                self._seen[lane] = page[-1][0]

    async def _good(self, reply: _Reply) -> list[TakenTask]:
        """Parsed tasks. An entry that is not one of ours is logged and removed, since no worker could ever run it; one that
        was deleted while it was pending has no fields, and only its pending mark is removed."""
        good: list[TakenTask] = []
        for lane, page in reply:
            bad: list[str] = []
            for entry, fields in page:
                try:
                    good.append(TakenTask(TaskCopy.parse(fields), lane, entry, self._lanes[lane]))
                except (KeyError, ValueError, AttributeError, TypeError):
                    bad.append(entry)
                    if fields:
                        _log.error("task_unreadable", lane=lane, entry=entry)
            if bad:
                await self._drop(lane, bad)
        return good

    async def _drop(self, lane: str, entries: list[str]) -> None:
        async with self._valkey.pipeline(transaction=True) as pipe:
            pipe.xack(lane, keys.LANE_GROUP, *entries)
            pipe.xdel(lane, *entries)
            await pipe.execute()


def _rows(reply: Any) -> _Reply:
    """A reply of XREAD or XREADGROUP under RESP2 (a list) or RESP3 (a mapping that nests the entries once more). An entry has its
    fields in a dictionary or one after the other."""
    rows = [(lane, pages[0] if pages else []) for lane, pages in reply.items()] if isinstance(reply, dict) else reply
    return [(lane.decode(), [(entry.decode(), _paired(fields)) for entry, fields in page]) for lane, page in rows or ()]


def _paired(fields: Any) -> dict[bytes, bytes]:
    return dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields or {}


def _by_lane(tasks: list[TakenTask]) -> dict[str, list[str]]:
    by_lane: dict[str, list[str]] = {}
    for task in tasks:
        by_lane.setdefault(task.lane, []).append(task.entry)
    return by_lane
