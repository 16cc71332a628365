"""What Valkey is told about generations, off the token path: their states, and that tasks are done."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import structlog
from redis.exceptions import RedisError

from streamway.lanes import LaneReader, TakenTask
from streamway.lanes.writer import RECORD_TTL_MS
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.asking import ask
from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link
from streamway.valkey.session import Argument

_log = structlog.get_logger("adapter")

_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0
_MOST_STATES: Final = 10_000


class Books:
    """Writes states and acknowledges tasks in batches; while Valkey is away both wait here.

    A task is acknowledged after its state was written: a worker that dies in between finds a finished state beside a pending
    task, and not a running one. States that wait are bounded; the oldest make room, tasks that wait are bounded by the window.
    Tasks of generations with a response channel are acknowledged by the journal instead.
    """

    def __init__(self, valkey: Valkey, lanes: LaneReader, link: Link) -> None:
        self._valkey = valkey
        self._link = link
        self._lanes = lanes
        # Fields of records, not written yet.
        self._states: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._done: dict[tuple[str, str], TakenTask] = {}
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def empty(self) -> bool:
        """Everything is written."""
        return not self._states and not self._done

    def state(self, generation: str, state: str) -> None:
        """Has a generation's state written; only the latest counts."""
        self._note(generation, {"state": state})

    def began(self, generation: str, worker: str, epoch: int) -> None:
        """Has it written that an engine call of this worker has begun."""
        self._note(generation, {"state": "running", "worker": worker, "epoch": str(epoch)})

    def without_channel(self, request: common_pb2.GenerationRequest, worker: str, epoch: int) -> None:
        """Has a record written anew that the store lost: the worker's memory is all there is, and a reader finds it there."""
        fields = {"tenant": request.tenant, "session": request.session, "model": request.model}
        self._note(request.generation, {**fields, "durability": str(int(common_pb2.DURABILITY_OFF))})
        self.began(request.generation, worker, epoch)

    def forget(self, generation: str) -> None:
        """Writes nothing more of a generation that is another worker's now."""
        self._states.pop(generation, None)

    async def withdraw(self, generation: str) -> None:
        """The same, also for what is being written at this moment. Raises nothing; waits while the store is away."""
        self.forget(generation)
        async with self._writing:
            self.forget(generation)

    def _note(self, generation: str, fields: dict[str, str]) -> None:
        # A new dictionary each time: `write` tells by its identity whether anything came after what it wrote.
        self._states[generation] = {**self._states.get(generation, {}), **fields}
        self._states.move_to_end(generation)
        if len(self._states) > _MOST_STATES:
            self._states.popitem(last=False)
        self._wake.set()

    def finish(self, task: TakenTask) -> None:
        """Has a task acknowledged and deleted."""
        self._done[task.lane, task.entry] = task
        self._wake.set()

    def finishing(self, task: TakenTask) -> bool:
        """True for a task that is done and not acknowledged yet."""
        return (task.lane, task.entry) in self._done

    async def run(self) -> None:
        """Writes until cancelled."""
        pause_s = _PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.write()
                pause_s = _PAUSE_S
            except (RedisError, OSError) as problem:
                if pause_s == _PAUSE_S:
                    _log.warning("states_not_written", problem=type(problem).__name__, waiting=len(self._states))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                self._wake.set()
            # What ends within a moment goes in one write.
            await asyncio.sleep(pause_s)

    async def write(self) -> None:
        """Writes what waits. Raises RedisError or OSError; then it still waits."""
        async with self._writing:
            await self._write()

    async def _write(self) -> None:
        states, tasks = dict(self._states), list(self._done.values())
        if states:
            await ask(self._valkey, self._link, _written(states))
            for generation, noted in states.items():
                if self._states.get(generation) is noted:
                    del self._states[generation]
        if tasks:
            await self._lanes.finish(tasks)
            for task in tasks:
                self._done.pop((task.lane, task.entry), None)


def _written(states: Mapping[str, Mapping[str, str]]) -> list[tuple[Argument, ...]]:
    commands: list[tuple[Argument, ...]] = []
    for generation, noted in states.items():
        key = keys.generation(generation)
        commands.append(("HSET", key, *(word for pair in noted.items() for word in pair)))
        commands.append(("PEXPIRE", key, RECORD_TTL_MS))
    return commands
