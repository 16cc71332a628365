"""From the lanes into the window."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from redis.exceptions import RedisError

from services.inference_adapter.core.hidden import HiddenTasks
from services.inference_adapter.io.arrival import Arrival
from services.inference_adapter.io.books import Books
from services.inference_adapter.io.dismissals import Dismissals
from services.inference_adapter.io.journaling import Journaling
from services.inference_adapter.io.worker import Worker
from streamway.errors import EventsExpired, GenerationNotFound, GoingAway, Internal, WorkerLost
from streamway.lanes import LaneReader, Standing, TakenTask, keep_records, request_of, standings_of
from streamway.memory import MemoryWatch
from streamway.runtime.spacing import Spacing
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import Durability
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link

_log = structlog.get_logger("adapter")

_LOOK_UP_S: Final = 1.0
_MOST_LOOKED_UP: Final = 1000
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_MOST_MOVED: Final = 100


class LaneLoop:
    """Takes tasks while the window has room, and keeps their leases.

    `lanes` are the worker's own, `pool` those that every worker of its models reads; each has a loop, since they may lie on two
    servers. What this worker had pending comes first: at the start, and after every error, since the reply with a task may be
    what was lost; and it is looked at now and then, since a reply can be lost without an error. While Valkey is away running
    generations go on, and what ends meanwhile is acknowledged later.
    """

    def __init__(
        self,
        valkey: Valkey,
        link: Link,
        lanes: LaneReader,
        pool: LaneReader,
        worker: Worker,
        dismissals: Dismissals,
        books: Books,
        journaling: Journaling,
        memory: MemoryWatch,
        *,
        name: str,
        task_lease_s: float,
        gather_s: float,
    ) -> None:
        self._valkey = valkey
        self._link = link
        self._lanes = lanes
        self._pool = pool
        self._worker = worker
        self._dismissals = dismissals
        self._books = books
        self._journaling = journaling
        self._memory = memory
        self._name = name
        self._task_lease_s = task_lease_s
        self._gather_s = gather_s
        self._draining = False

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take(self._lanes), name="take")
            group.create_task(self._take(self._pool), name="take-pool")
            group.create_task(self._renew(), name="renew")
            group.create_task(self._look_up(), name="look-up")
            group.create_task(self._books.run(), name="books")

    def leave_the_pool(self) -> None:
        """Takes nothing more that another worker could take as well."""
        self._draining = True

    async def emptied(self) -> bool:
        """True when nothing lies in the lanes and everything is written; also while Valkey does not answer."""
        try:
            return self._books.empty and await self._lanes.length() == 0
        except (RedisError, OSError):
            return True

    async def move_unread(self) -> None:
        """Gives what nobody has read to other workers; what has no channel is ended. Raises RedisError."""
        while tasks := await self._lanes.take(dict.fromkeys(keys.CLASSES, _MOST_MOVED)):
            records = await request_of(self._valkey, [task.copy.generation for task in tasks], self._link)
            for task, record in zip(tasks, records, strict=True):
                if record is not None and record[0].durability != Durability.DURABILITY_OFF:
                    await self._journaling.pass_on(task, record[0].model)
                else:
                    tenant = record[0].tenant if record is not None else ""
                    self._dismissals.refuse(task.copy.generation, tenant, GoingAway("worker"), task)

    async def _take(self, lanes: LaneReader) -> None:
        shared = lanes is self._pool
        connected, trouble, pause_s = False, False, _FIRST_PAUSE_S
        hidden, now = HiddenTasks(), asyncio.get_running_loop().time
        spacing = Spacing(self._gather_s)
        async with asyncio.TaskGroup() as group:
            arrival = Arrival(lanes, group)
            while True:
                try:
                    if not connected:
                        await self._connect(lanes)
                        if trouble:
                            _log.info("lanes_reached_again")
                        connected, trouble, pause_s = True, False, _FIRST_PAUSE_S
                    elif hidden.due(now()):
                        await self._admit(hidden.confirmed(await self._unknown(lanes)))
                    await spacing.turn()
                    await self._worker.room.wait(shared=shared)
                    before = self._worker.room.changes
                    more, full = await self._take_some(lanes, shared=shared)
                    if not more:
                        # A class without room may have something unread that no arrival will tell of.
                        await arrival.wait(self._worker.room.changed(before) if full else None)
                except (RedisError, OSError) as problem:
                    if not trouble:
                        _log.warning("lanes_not_reached", problem=type(problem).__name__)
                    connected, trouble = False, True
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _connect(self, lanes: LaneReader) -> None:
        await lanes.open()
        pending = await self._unknown(lanes)
        if pending:
            _log.info("own_tasks_pending", tasks=len(pending))
            await self._admit(pending)

    async def _unknown(self, lanes: LaneReader) -> list[TakenTask]:
        """What is pending under this worker's name and not here."""
        return [task for task in await lanes.own_pending() if not self._worker.knows(task)]

    async def _take_some(self, lanes: LaneReader, *, shared: bool) -> tuple[bool, bool]:
        """Takes what there is room for. Whether there may be more to take, and whether a class had no room."""
        if shared and self._draining:
            return False, False
        wanted = keys.CLASSES
        if self._memory.pressed:
            # Bulk waits in its lane, and for whoever has more room in the pool.
            wanted = tuple(class_ for class_ in keys.CLASSES if not keys.is_bulk(class_))
        # Idle slots are offered to one shared lane after the other: what is taken there nobody else gets.
        reads = [(class_,) for class_ in wanted] if shared else [wanted]
        more = full = False
        for classes in reads:
            left, without = await self._read(lanes, classes, shared=shared)
            more, full = more or left, full or without
        return more, full

    async def _read(self, lanes: LaneReader, classes: tuple[keys.TaskClass, ...], *, shared: bool) -> tuple[bool, bool]:
        window = self._worker.window
        granted = self._worker.room.reserve(classes, shared=shared)
        try:
            tasks = await lanes.take(granted) if any(granted.values()) else []
            more = False
            if tasks:
                await self._admit(tasks)
                for class_, room in granted.items():
                    count = sum(task.class_ == class_ for task in tasks)
                    window.took(count, room)
                    # A lane that gave less than it was asked for was empty; what has come since, an arrival tells of.
                    more = more or 0 < room <= count
            return more, not all(granted.values())
        finally:
            self._worker.room.release(granted)

    async def _admit(self, tasks: list[TakenTask]) -> None:
        """Gives tasks to the worker. One without a channel whose engine call began in an earlier life is lost: running it again
        would give its readers another text. What a channel holds is gone on with."""
        records = await request_of(self._valkey, [task.copy.generation for task in tasks], self._link)
        for task, record in zip(tasks, records, strict=True):
            if self._worker.knows(task):
                continue
            if record is None:
                # Its record has expired, so everybody has stopped waiting, or it is damaged.
                _log.warning("task_without_record", generation=task.copy.generation, lane=task.lane)
                self._start_unknown(task)
                continue
            request, state, created_ms = record
            if state == "queued" or request.durability != Durability.DURABILITY_OFF:
                self._start(request, created_ms / 1000, task)
            elif state == "running":
                self._dismissals.lose(task)
            else:
                self._books.finish(task)

    def _start(self, request: common_pb2.GenerationRequest, created_unix: float, task: TakenTask) -> None:
        try:
            self._worker.admit(request, created_unix, task)
        except Exception:  # noqa: BLE001 — a task that is read again after a restart must not end the worker each time
            _log.exception("task_not_started", generation=request.generation)
            self._dismissals.refuse(request.generation, request.tenant, Internal(), task)

    def _start_unknown(self, task: TakenTask) -> None:
        """Nobody can say what it was to do. If it has a channel, that gets its end."""
        id_ = task.copy.generation
        request = common_pb2.GenerationRequest(generation=id_, durability=Durability.DURABILITY_RELAXED)
        self._worker.admit(request, 0.0, task, refusal=GenerationNotFound(id_))

    async def _look_up(self) -> None:
        """Looks for what readers wait for and no task will bring: it ended, or runs elsewhere, or ran in an earlier life."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_UP_S):
                    await self._dismissals.stranger.wait()
            except TimeoutError:
                pass
            self._dismissals.stranger.clear()
            awaited = self._dismissals.awaited[:_MOST_LOOKED_UP]
            if not awaited:
                continue
            try:
                standings = await standings_of(self._valkey, awaited)
            except (RedisError, OSError):
                # The loop that takes tasks says so.
                await asyncio.sleep(_LOOK_UP_S)
                continue
            for generation, standing in zip(awaited, standings, strict=True):
                self._judge(generation, standing)
            await asyncio.sleep(_FIRST_PAUSE_S)

    def _judge(self, generation: str, standing: Standing) -> None:
        if standing.state == "queued":
            return
        if not standing.state:
            # Its router may still be writing the record; but not if somebody has read more than `accepted`.
            if self._dismissals.seen(generation) > 1:
                self._dismissals.will_not_come(generation, WorkerLost(self._name))
        elif not standing.durable:
            self._dismissals.will_not_come(generation, WorkerLost(self._name))
        elif standing.state != "running" or standing.worker != self._name:
            # Its channel has what there is, and whoever reads that finds who goes on with it.
            self._dismissals.will_not_come(generation, EventsExpired(generation))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._task_lease_s / 3)
            try:
                tasks = self._worker.tasks
                await self._lanes.renew(tasks)
                await keep_records(self._valkey, [task.copy.generation for task in tasks])
            except (RedisError, OSError) as problem:
                _log.warning("task_leases_not_renewed", problem=type(problem).__name__)
