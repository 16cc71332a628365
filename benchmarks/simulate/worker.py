"""One worker in virtual time: its lanes, the adapter's window, the simulated engine."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from services.inference_adapter.core.engine_pace import EnginePace
from services.inference_adapter.core.preload import PreloadDepth
from services.inference_adapter.core.urgency import slots_ahead
from services.inference_adapter.core.window import Window
from services.inference_adapter.core.window_events import Drop, Effect, Ended, Start, Taken, Tick
from services.router.core.queues import Lanes
from services.router.core.worker import ServedModel, Worker
from streamway.simulation.engine import Ended as EngineEnded
from streamway.simulation.engine import SimulatedEngine
from streamway.simulation.request import SimulationRequest
from streamway.simulation.sequence import Piece, SimulatedCall
from streamway.simulation.settings import SimulationSettings
from streamway.valkey.keys import CLASSES, TaskClass

MODEL: Final = "simulated"


@dataclass(slots=True)
class Task:
    """A generation on its way. `done(cached_tokens, made_tokens, now)`, `refused(now)`: how it ended."""

    id: str
    request: SimulationRequest
    tenant: str
    weight: int
    priority: int
    lane: TaskClass
    cost: int
    first: Callable[[float], None]
    done: Callable[[int, int, float], None]
    refused: Callable[[float], None]
    came_at: float = 0.0
    begun_at: float = 0.0
    first_at: float = -1.0
    text: list[str] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)


class SimWorker:
    """Takes tasks as the adapter does. `fair` False: first come, first served, by the same window.

    `ahead`: slots kept for urgent work; None: as many as the adapter keeps. `queue_timeout_s`: longest wait for a slot.
    """

    def __init__(
        self,
        id_: str,
        settings: SimulationSettings,
        preload_depth: int,
        *,
        fair: bool,
        ahead: int | None = None,
        queue_timeout_s: float = 300.0,
    ) -> None:
        self.id = id_
        self._queue_timeout_s = queue_timeout_s
        self._slots = settings.slots
        self._fair = fair
        depth = PreloadDepth(preload_depth, preload_depth)
        self._window = Window(settings.slots, depth, ahead=slots_ahead(settings.slots) if ahead is None else ahead)
        self._engine = SimulatedEngine(settings)
        self._pace = EnginePace()
        # One for each tier, or one for all where the first to come is the first to be served.
        self._lanes: dict[TaskClass, deque[Task]] = {}
        self._tasks: dict[str, Task] = {}
        self._report = self._said(0.0)

    @property
    def report(self) -> Worker:
        """What its lease says: as of its last renewal, beside the tasks in its lanes now."""
        return self._report

    @property
    def lanes(self) -> Lanes:
        """Tasks of each class: in the lane, waiting, running."""
        here: Counter[str] = Counter(self._class(task) for task in self._tasks.values())
        here.update({class_: len(lane) for class_, lane in self._lanes.items()})
        return self._count(here)

    def renew(self, now: float) -> None:
        """Writes the lease."""
        self._report = self._said(now)

    def add(self, task: Task, now: float) -> None:
        """A task comes into its lane."""
        task.came_at = now
        self._lanes.setdefault(self._class(task), deque()).append(task)
        self._take(now)

    def _count(self, tasks: Mapping[str, int]) -> Lanes:
        gold, silver, bronze, bulk = (tasks.get(class_, 0) for class_ in CLASSES)
        return gold, silver, bronze, bulk

    def _class(self, task: Task) -> TaskClass:
        return task.lane if self._fair else CLASSES[0]

    def tick(self, now: float) -> None:
        """Time has passed."""
        self._perform(self._window.receive(Tick(), now), now)
        self._take(now)

    def step(self, now: float) -> float | None:
        """What the engine did until `now`; when to call again, None: when something is added."""
        while True:
            events, wake = self._engine.step(now)
            if not events:
                return wake
            for event in events:
                if isinstance(event, Piece):
                    self._piece(event, now)
                elif isinstance(event, EngineEnded):
                    self._ended(event.call, now)

    def _piece(self, piece: Piece, now: float) -> None:
        task: Task = piece.call.tag
        task.text.append(piece.text)
        task.token_times.append(now)
        if task.first_at < 0:
            task.first_at = now
            task.first(now)

    def _ended(self, call: SimulatedCall, now: float) -> None:
        task: Task = call.tag
        del self._tasks[task.id]
        counted = call.counted
        uncached = counted.prompt - counted.cached
        self._pace.ended(task.first_at - task.begun_at, now - task.begun_at, uncached)
        task.done(counted.cached, counted.completion, now)
        self._perform(self._window.receive(Ended(task.id, uncached + counted.completion), now), now)
        self._take(now)

    def _take(self, now: float) -> None:
        for name, lane in self._lanes.items():
            while lane and self._window.room(name) > 0:
                task = lane.popleft()
                self._tasks[task.id] = task
                late = task.came_at + self._queue_timeout_s
                taken = Taken(task.id, 0, 0, late, math.inf, name, cost=task.cost, own=True)
                if self._fair:
                    taken = replace(taken, priority=task.priority, tenant=task.tenant, weight=task.weight)
                self._perform(self._window.receive(taken, now), now)

    def _perform(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case Start():
                    task = self._tasks[effect.id]
                    task.begun_at = now
                    self._engine.submit(task.request, task)
                case Drop():
                    self._tasks.pop(effect.id).refused(now)

    def _said(self, now: float) -> Worker:
        return Worker(
            self.id,
            self.id,
            (ServedModel(MODEL, 0),),
            self._slots,
            load_tokens=sum(task.cost for task in self._tasks.values()),
            reported_ms=now * 1000,
            prefill_ms=self._pace.prefill_ms,
            slot_ms=self._pace.slot_ms,
            running=self._count(self._window.running_lanes),
            busy=self._window.running,
        )
