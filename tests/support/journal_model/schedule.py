"""Schedules: which step comes next, drawn from a seed or replayed from a list of choices."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from streamway.journal.entries import Kind
from streamway.valkey import keys
from streamway.valkey.session import Argument
from tests.support.journal_model.actors import Build, Reader, ReclaimerActor, Router, Worker, World
from tests.support.journal_model.checks import Watch, channel_of, check_end
from tests.support.journal_model.store import ModelStore
from tests.support.journal_model.wire import Actor, ModelSession

_CHOICE_BITS = 30

Step = tuple[float, str, Callable[[], None]]


@dataclass
class Outcome:
    """How a schedule went. `problems` empty: every invariant held."""

    problems: list[str]
    choices: list[int]
    trace: list[str]


class Model:
    """Three workers, two reclaimers, one or two readers, one generation."""

    def __init__(self, store: ModelStore, build: Build, seed: int) -> None:
        store.reset()
        store.scripts = build.scripts
        self.store = store
        draw = random.Random(seed)
        self.world = world = World(draw, build)
        world.lanes = [keys.lane(f"w{index}", "gold") for index in range(3)]
        self.router = Router(store, "router", world)
        self.workers = [Worker(store, f"w{index}", lane, world) for index, lane in enumerate(world.lanes)]
        self.reclaimers = [ReclaimerActor(store, f"q{index}", world) for index in range(2)]
        self.readers = [Reader(store, f"e{index}", world) for index in range(draw.choice((1, 1, 2)))]
        world.readers = self.readers
        self.actors: list[Actor] = [self.router, *self.workers, *self.reclaimers, *self.readers]
        self.late: list[deque[tuple[Argument, ...]]] = []
        self.watch = Watch(world, store, self.workers)
        # Faults of a schedule: some kinds are absent, some are frequent, so that each is also seen by itself.
        self.rate = {fault: draw.choice((0.0, 0.3, 1.0)) for fault in ("break", "crash", "pause", "sweep", "reader")}
        self.rate["loss"] = draw.choice((0.0, 0.0, 0.3, 0.6))
        for lane in world.lanes:
            store.execute("setup", ("XGROUP", "CREATE", lane, keys.LANE_GROUP, "0", "MKSTREAM"))
        for actor in self.actors:
            actor.connect()
        self.router.spawn(self.router.accept())
        if draw.random() < 0.8:
            self._move(self.router.wire)
            self._move(self.router.wire)

    # --- What can happen next

    def steps(self) -> Iterator[Step]:
        world = self.world
        for actor in self.actors:
            yield from self._faults(actor)
            if actor.paused or not actor.alive:
                continue
            wire = actor.wire
            if wire is None:
                yield 2.0, f"{actor.name} connects", actor.connect
                continue
            if wire.requests:
                yield 2.0, f"{actor.name} request {wire.requests[0][0][0]}", wire.execute_next
            if wire.replies:
                yield 2.0, f"{actor.name} reply", wire.deliver_next
            if wire.requests or wire.replies:
                yield 2.0, f"{actor.name} moves on", partial(self._move, wire)
        for worker in self.workers:
            if worker.alive and not worker.paused:
                if worker.wire is not None and not worker.polling:
                    yield 0.3, f"{worker.name} polls", worker.poll
                if worker.wire is not None:
                    yield 0.05, f"{worker.name} looks at its own", worker.look_at_own
                for call in worker.calls:
                    if world.build.relaxed and call.can_loosen:
                        yield 0.5, f"{worker.name} call {call.number} delivers without the store", call.deliver_all
                    if call.can_make:
                        tokens = 1 + (len(call.events) % 3)
                        yield (
                            2.0,
                            f"{worker.name} call {call.number} makes {tokens}",
                            partial(call.make, tokens),
                        )
        for reader in self.readers:
            for worker, mailbox in reader.mailboxes.items():
                if mailbox and not reader.paused:
                    yield 2.0, f"{reader.name} event of {worker}", partial(reader.take, worker)
                    yield 0.2 * self.rate["reader"], f"{reader.name} misses one", partial(reader.miss, worker)
            if world.promised and not reader.catching_up and reader.wire is not None:
                yield 1.0 if reader.wants_channel else 0.1, f"{reader.name} reads the channel", reader.catch_up
        for queue in self.late:
            yield 1.0, f"late {queue[0][0]}", partial(self._run_late, queue)
        if self.rate["sweep"]:
            for reclaimer in self.reclaimers:
                if reclaimer.alive and not reclaimer.paused and not reclaimer.busy and reclaimer.wire is not None:
                    yield 1.0 * self.rate["sweep"], f"{reclaimer.name} sweeps", partial(self._sweep, reclaimer)
        if self.rate["loss"] and world.promised:
            yield 0.15 * self.rate["loss"], "the store loses writes", self._lose
        if world.timers:
            yield 2.0, "a timer", self._fire

    def _faults(self, actor: Actor) -> Iterator[Step]:
        if not actor.alive:
            yield 0.7, f"{actor.name} starts", lambda: self._start(actor)
            return
        if actor.paused:
            yield 0.5, f"{actor.name} wakes", lambda: setattr(actor, "paused", False)
            return
        if actor.wire is not None:
            yield 0.15 * self.rate["break"], f"{actor.name} loses its connection", lambda: self._break(actor)
        if actor is not self.router:
            yield 0.1 * self.rate["crash"], f"{actor.name} crashes", lambda: self._crash(actor)
            yield 0.06 * self.rate["pause"], f"{actor.name} pauses", lambda: setattr(actor, "paused", True)

    def _fire(self) -> None:
        self.world.timers.pop(0)()

    def _move(self, wire: ModelSession) -> None:
        """Everything that waits on a connection, and up to three rounds of what follows from it."""
        for _ in range(self.world.draw.randint(1, 3)):
            while wire.requests:
                wire.execute_next()
            while wire.replies:
                wire.deliver_next()

    def _keep_late(self, queue: deque[tuple[Argument, ...]]) -> None:
        if queue:
            self.late.append(queue)

    def _break(self, actor: Actor) -> None:
        waiting = len(actor.wire.requests) if actor.wire is not None else 0
        self._keep_late(actor.break_wire(self.world.draw.randint(0, waiting)))

    def _crash(self, actor: Actor) -> None:
        waiting = len(actor.wire.requests) if actor.wire is not None else 0
        self._keep_late(actor.crash(self.world.draw.randint(0, waiting)))

    def _start(self, actor: Actor) -> None:
        actor.alive = True
        actor.connect()

    def _run_late(self, queue: deque[tuple[Argument, ...]]) -> None:
        self.store.execute("late", queue.popleft())
        while self.store.in_transaction:
            self.store.execute("late", queue.popleft())
        if not queue:
            self.late.remove(queue)

    def _sweep(self, reclaimer: ReclaimerActor) -> None:
        """Suspects whoever it likes: that a worker lives makes no difference to a reclaimer that can't see it."""
        draw = self.world.draw
        owner = draw.randrange(3)
        gone = {actor.name for actor in (*self.workers, *self.reclaimers) if draw.random() < 0.5}
        if draw.random() < 0.5:
            gone = {actor.name for actor in (*self.workers, *self.reclaimers) if not actor.alive}
        reclaimer.sweep(self.world.lanes[owner], frozenset(gone), owner_gone=f"w{owner}" in gone)

    def _lose(self) -> None:
        """The store crashes: every connection breaks with it, and nothing that was under way arrives."""
        self.store.lose(self.world.draw.randint(1, self.world.draw.choice((2, 5, 12))))
        self.late.clear()
        for actor in self.actors:
            actor.break_wire()
        self.watch.lost()

    def pick(self, choice: int) -> tuple[str, Callable[[], None]]:
        """The step a choice stands for: a point on the line of all that can happen now, each as long as its weight."""
        self.world.now += 0.001
        steps = [step for step in self.steps() if step[0] > 0]
        point = choice / (1 << _CHOICE_BITS) * sum(weight for weight, _, _ in steps)
        for weight, label, act in steps:
            point -= weight
            if point < 0:
                return label, act
        return steps[-1][1:]

    # --- Coming to rest

    def settle(self) -> None:
        """No more faults: everybody lives, sees everybody, and works until nothing is left to do."""
        for actor in self.actors:
            actor.paused = False
            if not actor.alive:
                actor.alive = True
            if actor.wire is None:
                actor.connect()
        while self.late:
            self._run_late(self.late[0])
        for _ in range(120):
            if not self._calm_round() and self._at_rest():
                return
        self.world.problem("(5) it never comes to rest")

    def _calm_round(self) -> bool:
        """Everything that waits is moved along once. False when nothing waited."""
        moved = False
        for actor in self.actors:
            while actor.wire is not None and (actor.wire.requests or actor.wire.replies):
                moved = True
                while actor.wire.requests:
                    actor.wire.execute_next()
                while actor.wire.replies:
                    actor.wire.deliver_next()
        while self.world.timers:
            self.world.timers.pop(0)()
        for worker in self.workers:
            for call in worker.calls:
                if call.can_make:
                    call.make(2)
                    moved = True
        for reader in self.readers:
            for worker, mailbox in reader.mailboxes.items():
                while mailbox:
                    reader.take(worker)
                    moved = True
        self.watch.step()
        return moved

    def _at_rest(self) -> bool:
        """Nothing moves: asks for more work, and says whether there was none."""
        copies = self._copies()
        for worker in self.workers:
            worker.look_at_own()
            if not worker.polling:
                worker.poll()
        for index, reclaimer in enumerate(self.reclaimers):
            if not reclaimer.busy:
                self.idle_sweeps = getattr(self, "idle_sweeps", 0) + 1
                lane = self.world.lanes[(self.idle_sweeps + index) % 3]
                reclaimer.sweep(lane, frozenset(), owner_gone=False)
        for reader in self.readers:
            # Also whoever has seen the end: a client may come back with its last cursor.
            if not reader.catching_up:
                reader.catch_up()
        entries = channel_of(self.store)
        ended = not entries or entries[-1].kind is Kind.END
        self.quiet = getattr(self, "quiet", 0) + 1 if copies == 0 else 0
        read = all(reader.finished or reader.told or reader.behind for reader in self.readers) or not entries
        # So many rounds that each lane was swept by each reclaimer.
        return self.quiet > 6 and (read or not ended)

    def _copies(self) -> int:
        return sum(map(int, self.store.ask_all(*(("XLEN", lane) for lane in self.world.lanes))))


def run(store: ModelStore, build: Build, seed: int, choices: list[int] | None = None) -> Outcome:
    """Runs one schedule: the `choices` if given, else 60 … 300 drawn ones. An exception in an actor is a problem too."""
    model = Model(store, build, seed)
    draw = random.Random(seed ^ 0x5EED)
    drawn = (draw.getrandbits(_CHOICE_BITS) for _ in range(draw.randint(60, 300)))
    made: list[int] = []
    trace: list[str] = []
    try:
        for choice in choices if choices is not None else drawn:
            made.append(choice)
            label, act = model.pick(choice)
            trace.append(label)
            act()
            model.watch.step()
            if model.world.problems:
                return Outcome(model.world.problems, made, trace)
        trace.append("--- rest ---")
        model.settle()
        if not model.world.problems:
            check_end(model.world, store, model.readers)
    except Exception as error:
        model.world.problem(f"{type(error).__name__}: {error}")
    return Outcome(model.world.problems, made, trace)


def shrink(store: ModelStore, build: Build, seed: int, choices: list[int], budget: int = 150) -> Outcome:
    """A shorter list of choices that still breaks an invariant: drops pieces, larger ones first."""
    best = run(store, build, seed, choices)
    size = max(1, len(choices) // 2)
    while budget > 0 and best.problems:
        start = 0
        while start < len(best.choices) and budget > 0:
            shorter = best.choices[:start] + best.choices[start + size :]
            budget -= 1
            tried = run(store, build, seed, shorter)
            if tried.problems:
                best = tried
            else:
                start += size
        if size == 1:
            break
        size //= 2
    return best
